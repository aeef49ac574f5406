"""The optional packages of this project, and how to install them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from cutlayer.errors import ConfigError

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "sweep": ("optuna",),
    "sql": ("sqlalchemy",),
    "onnx": ("onnx", "onnxscript"),
    "sklearn": ("skops",),
    "mlflow": ("mlflow",),
    "tensorboard": ("tensorboardX",),
    "otel": ("opentelemetry",),
}
"""Modules that each extra brings and this package imports, by its name."""


def missing_of(extra: str) -> list[str]:
    """Modules of an extra that are not installed; nothing is imported."""
    return [name for name in EXTRAS[extra] if find_spec(name) is None]


def remedy_of(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'cutlayer[{extra}]'"


def check_extra(extra: str, purpose: str = "") -> None:
    """Check that an extra is installed.

    Args:
        extra: Name of the extra.
        purpose: What needs it, for the message.

    Raises:
        ConfigError: A module of it is missing.
    """
    if missing := missing_of(extra):
        wanted = f"the extra `{extra}`{f' for {purpose}' if purpose else ''}"
        raise ConfigError.expected(wanted, f"no {', '.join(missing)}", remedy_of(extra))
