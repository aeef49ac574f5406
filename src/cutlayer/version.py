"""The one place that holds the version number at run time."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("cutlayer")
except PackageNotFoundError:
    __version__ = "0.0.0"
