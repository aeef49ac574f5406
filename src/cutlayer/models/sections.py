"""Kinds of models, and the types that their sections of a job share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from cutlayer.config import FrozenModel

MAX_WIDTH = 65_536

Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]
"""Columns of a layer."""

Widths = Annotated[tuple[Width, ...], Field(max_length=256)]
"""Columns of layers that follow each other; a layer takes far more memory than its place in a file."""

Cut = Literal["activated", "linear"]
"""Whether the layer that gives the embedding has an activation. Without one an embedding points in any direction."""

Activation = Literal["relu", "gelu", "tanh", "silu"]


class BottomKind(NamedTuple):
    """A kind of bottom model.

    Attributes:
        config: Section of the job that describes a model of this kind.
        build: Makes the model from its section and the party's `Inputs`.
        width: Number of columns of the embedding, by its section; `None` where only the model knows. By default the
            `width` of the section.
    """

    config: type[FrozenModel]
    build: Callable[..., Any]
    width: Callable[[Any], int | None] = lambda section: getattr(section, "width", None)


class TopKind(NamedTuple):
    """A kind of top model.

    Attributes:
        config: Section of the job that describes a model of this kind.
        build: Makes the model from its section, the widths of the embeddings by party, and the number of outputs.
        needs_departures: Whether `build` takes the names of the parties that may leave.
        is_fitted: Whether the model is fitted at once instead of by gradient steps; such a model is a `FittedTop`.
    """

    config: type[FrozenModel]
    build: Callable[..., Any]
    needs_departures: bool = False
    is_fitted: bool = False
