"""The `python` kind: a user's own `nn.Module`, named by its import path."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from cutlayer.config import Section
from cutlayer.errors import ConfigError
from cutlayer.models.base import BottomModel, Inputs, TopModel


class UserModelConfig(Section):
    """A class to import and call.

    Attributes:
        path: `package.module:Class`.
        args: keyword arguments of its constructor, after `inputs` (bottom) or `widths` and `outputs` (top).
    """

    kind: Literal["python"] = "python"
    path: str = Field(pattern=r"^[\w.]+:\w+$")
    args: Mapping[str, Any] = Field(default_factory=dict)


class UserBottom(BottomModel):
    """Wraps a user's module; it is built as `Class(inputs, **args)` and must say its `width`."""

    def __init__(self, config: UserModelConfig, inputs: Inputs) -> None:
        super().__init__()
        self.module = _construct(config, inputs)
        width = getattr(self.module, "width", None)
        if not isinstance(width, int) or width < 1:
            raise ConfigError.expected(
                f"model.bottom {config.path} with an int attribute `width`", width, "the cut's width must be known"
            )
        self.width = width

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Call the user's module with codes int32 (n, c) and numbers float32 (n, m)."""
        result: Tensor = self.module(codes, numbers)
        return result


class UserTop(TopModel):
    """Wraps a user's module; it is built as `Class(widths, outputs, **args)` and called with embeddings by party."""

    def __init__(self, config: UserModelConfig, widths: Mapping[str, int], outputs: int) -> None:
        super().__init__()
        self.module = _construct(config, dict(widths), outputs)

    def forward(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        """Logits from the user's module."""
        result: Tensor = self.module(embeddings)
        return result


def _construct(config: UserModelConfig, *arguments: object) -> nn.Module:
    module_name, _, class_name = config.path.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as failure:
        raise ConfigError.expected(f"an importable {config.path}", failure, "is its folder on PYTHONPATH?") from None
    try:
        module = factory(*arguments, **config.args)
    except TypeError as failure:
        raise ConfigError(f"{config.path} could not be built: {failure}") from None
    if not isinstance(module, nn.Module):
        raise ConfigError.expected(f"{config.path} to be an nn.Module", type(module).__name__)
    return module
