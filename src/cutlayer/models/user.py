"""The `python` kind: a user's own `nn.Module`, named by its import path and imported only with consent."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.errors import ConfigError, CutlayerError
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.models.base import BottomModel, TopModel
from cutlayer.models.sections import BottomKind, TopKind
from cutlayer.plugins import ClassPath, import_class
from cutlayer.problem.inputs import Inputs


class UserModelConfig(FrozenModel):
    """Your own class, to import and call (docs/how-to/model.md).

    It is imported only with consent from outside the job (docs/how-to/model.md#consent).

    Attributes:
        path: `package.module:Class`, a subclass of `nn.Module` whose module this process was allowed to import.
        args: Keyword arguments of its constructor, after `inputs` (bottom) or `widths` and `outputs` (top).
    """

    kind: Literal["python"] = "python"
    path: ClassPath
    args: Mapping[str, Any] = Field(default_factory=dict)


class UserBottom(BottomModel):
    """Wraps a user's module; it is built as `Class(inputs, **args)` and must say its `width`."""

    def __init__(self, config: UserModelConfig, inputs: Inputs) -> None:
        super().__init__()
        self.path = config.path
        self.module = _construct(config, inputs)
        width = getattr(self.module, "width", None)
        if not isinstance(width, int) or width < 1:
            raise ConfigError.expected(
                f"model.bottom {config.path} with an int attribute `width`", width, "the cut's width must be known"
            )
        self.width = width

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Call the user's module with codes int32 (n, c) and numbers float32 (n, m)."""
        return _called(self.module, self.path, (len(codes), self.width), codes, numbers)


class UserTop(TopModel):
    """Wraps a user's module; it is built as `Class(widths, outputs, **args)` and called with embeddings by party."""

    def __init__(self, config: UserModelConfig, widths: Mapping[str, int], outputs: int) -> None:
        super().__init__()
        self.path = config.path
        self.outputs = outputs
        self.module = _construct(config, dict(widths), outputs)

    def forward(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        """Logits from the user's module."""
        rows = len(next(iter(embeddings.values())))
        return _called(self.module, self.path, (rows, self.outputs), embeddings)


def _construct(config: UserModelConfig, *arguments: object) -> nn.Module:
    # A constructor may read its numbers, which a model that is built for its shapes alone has none of.
    with user_errors(config.path), torch.device("cpu"):
        kind: Callable[..., object] = import_class(config.path, needs=nn.Module)
        module = kind(*arguments, **config.args)
    # A class may build something else in its `__new__`.
    if not isinstance(module, nn.Module):
        raise ConfigError.expected(f"{config.path} to be an nn.Module", type(module).__name__)
    return module


@contextmanager
def user_errors(path: str) -> Iterator[None]:
    """Turn an error inside a user's code into a `ConfigError` that names the line."""
    try:
        yield
    except CutlayerError:
        raise
    except Exception as failure:
        frames = traceback.extract_tb(failure.__traceback__)[1:]
        pytorch = str(Path(torch.__file__).parent)
        user_frames = [frame for frame in frames if not frame.filename.startswith(pytorch)] or frames
        location = f"{user_frames[-1].filename}, line {user_frames[-1].lineno}" if user_frames else "its constructor"
        raise ConfigError(f"{path} failed at {location}: {type(failure).__name__}: {failure}") from failure


def _called(module: nn.Module, path: str, wanted: tuple[int, int], *inputs: object) -> Tensor:
    """What a user's module makes of its inputs, of a shape that is checked."""
    with user_errors(path):
        result: Tensor = module(*inputs)
    got = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
    if got != wanted:
        raise ConfigError.expected(f"{path} to return {wanted} numbers (rows, columns)", got)
    return result


PYTHON_BOTTOM = BottomKind(UserModelConfig, UserBottom)
PYTHON_TOP = TopKind(UserModelConfig, UserTop)
