"""The optional packages of this project, and how to install them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from cutlayer.errors import ConfigError

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "serve": ("cutlayer_serve", "fastapi", "uvicorn", "prometheus_client"),
    "sweep": ("cutlayer_sweep", "optuna"),
    "sql": ("sqlalchemy",),
    "export": ("cutlayer_export",),
    "onnx": ("cutlayer_export", "onnx", "onnxscript"),
    "sklearn": ("skops",),
    "mlflow": ("cutlayer_loggers", "mlflow"),
    "tensorboard": ("cutlayer_loggers", "tensorboardX"),
    "otel": ("cutlayer_serve", "opentelemetry"),
    "nvflare": ("cutlayer_nvflare",),
}
"""Modules that each extra brings, by its name: that of a package of this repository comes first."""
VERBS: Mapping[str, str] = {
    "serve": "serve",
    "api-key": "serve",
    "export": "export",
    "nvflare": "nvflare",
    "compare": "sweep",
    "sweep": "sweep",
    "recommend": "sweep",
}
"""Extra that brings each verb of a package of this repository. No other package can give a verb of this name."""
SAME_VERSION_REMEDY = "install its package in the version of cutlayer"


def missing_of(extra: str) -> list[str]:
    """Modules of an extra that are not installed; nothing is imported."""
    return [name for name in EXTRAS[extra] if find_spec(name) is None]


def remedy_of(extra: str) -> str:
    """The command that installs an extra; one of a package of this repository is installed from a checkout too.

    >>> remedy_of("sql")
    "pip install 'cutlayer[sql]'"
    >>> remedy_of("mlflow")
    "pip install 'cutlayer[mlflow]', or in a checkout pip install './plugins/loggers[mlflow]'"
    """
    command, package = f"pip install 'cutlayer[{extra}]'", EXTRAS[extra][0]
    folder = package.removeprefix("cutlayer_")
    if folder == package:
        return command
    own = {"serve": "[http]", "export": "", "nvflare": "", "sweep": ""}.get(extra, f"[{extra}]")
    return f"{command}, or in a checkout pip install './plugins/{folder}{own}'"


def check_extra(extra: str, purpose: str = "") -> None:
    """Check that an extra is installed.

    Args:
        extra: Name of the extra.
        purpose: What needs it, for the message.

    Raises:
        ConfigError: A module of it is missing.
    """
    if missing_of(extra):
        raise missing_extra_error(extra, purpose)


def missing_extra_error(extra: str, purpose: str) -> ConfigError:
    """The error for what an extra brings, which is not installed."""
    wanted = f"the extra `{extra}`{f' for {purpose}' if purpose else ''}"
    return ConfigError.expected(wanted, f"no {', '.join(missing_of(extra)) or 'entry point'}", remedy_of(extra))


def load_extra_part(extra: str, name: str, purpose: str) -> Any:
    """What a package of this repository, which an extra brings, adds to a verb of this one.

    Args:
        extra: Name of the extra.
        name: Name of the entry point in the group `cutlayer.parts`.
        purpose: What needs it, for the message.

    Raises:
        ConfigError: The package is not installed, or does not fit this one.
    """
    for point in entry_points(group="cutlayer.parts", name=name):
        if belongs_to(point, extra):
            try:
                return point.load()
            except (ImportError, AttributeError) as failure:
                wanted = f"an importable {point.value} for {purpose}"
                raise ConfigError.expected(wanted, failure, SAME_VERSION_REMEDY) from None
    raise missing_extra_error(extra, purpose)


def belongs_to(point: EntryPoint, extra: str) -> bool:
    """Whether an entry point is of the package that an extra brings, and not of another with the same names."""
    return point.dist is not None and point.dist.name == EXTRAS[extra][0].replace("_", "-")
