"""The label owner's part of a trained model as an MLflow `pyfunc`: it predicts from its own columns and releases.

MLflow loads an exported part by the name of this module; no object is pickled. A partner's release is one column `grade
of PARTY`, or a column `release NUMBER of PARTY` for each number; a row without any of them is predicted without the
party.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cutlayer.data.batches import evaluation_batches
from cutlayer.errors import DataError
from cutlayer.kernels.rows.grade_columns import columns_of_grades
from cutlayer.models import is_fitted
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.results.scores import score_columns, scores_of
from cutlayer.serving.given_columns import RequestKind, release_columns, request_kinds, request_table
from cutlayer_export.part import ExportedPart, load_part

if TYPE_CHECKING:
    import pandas as pd


class RegisteredModel:
    """A label owner's exported part, which predicts rows of a data frame.

    Args:
        part: The part, with a top model.
    """

    def __init__(self, part: ExportedPart) -> None:
        if part.top is None or part.architecture.top is None:
            raise DataError.expected("the part of the label owner", f"that of {part.architecture.party}")
        self._part, self._top, self._stated = part, part.top, part.architecture.top
        self._partners = [name for name in self._stated.widths if name != part.architecture.party]

    @property
    def columns(self) -> dict[str, RequestKind]:
        """The columns of an input, and what each holds: those of the label owner, then the releases."""
        own = {} if self._part.encoder is None else request_kinds(self._part.encoder)
        releases = (column for name in self._partners for column in self._columns(name))
        return {**own, **dict.fromkeys(releases, "number")}

    def _columns(self, party: str) -> tuple[str, ...]:
        return release_columns(party, self._stated.widths[party], graded=party in self._stated.grades)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The columns of a prediction."""
        return score_columns(self._part.task)

    @property
    def training(self) -> str:
        """Id of the training."""
        return self._part.architecture.training

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Predict rows, in the columns of `cutlayer predict`.

        Args:
            model_input: A row for each prediction, with the columns of `columns`.
            params: Not used.

        Raises:
            DataError: A column is missing or holds other values, or a release is there in part.
        """
        import pandas as pd

        missing = [name for name in self.columns if name not in model_input]
        if missing:
            raise DataError.expected(f"the columns {', '.join(self.columns)}", f"none of {', '.join(missing)}")
        scores = np.zeros((0, len(self.outputs)))
        if len(model_input):
            scores = scores_of(self._part.task, self._logits(model_input))
        return pd.DataFrame(dict(zip(self.outputs, scores.T, strict=True)), index=model_input.index)

    def _logits(self, frame: pd.DataFrame) -> Tensor:
        present: dict[str, Tensor] = {}
        made: dict[str, Tensor] = {}
        for name in self._stated.widths:
            made[name] = self._own(frame) if name not in self._partners else self._release(frame, name, present)
        some = {name: mask for name, mask in present.items() if not bool(mask.all())}
        logits = []
        with torch.no_grad():
            for rows in evaluation_batches(torch.arange(len(frame)), EVALUATION_ROWS):
                batch = {name: embedding[rows] for name, embedding in made.items()}
                here = {name: mask[rows] for name, mask in some.items()}
                logits.append(self._top.answer_rows(batch, [*batch], here))
        return torch.cat(logits)

    def _own(self, frame: pd.DataFrame) -> Tensor:
        """The label owner's own embedding (n, width)."""
        encoder, bottom = self._part.encoder, self._part.bottom
        if encoder is None or bottom is None:
            raise DataError.expected("a bottom model of the label owner", "none")
        kinds = request_kinds(encoder)
        table = request_table(encoder, {name: _values(frame[name].tolist(), kind) for name, kind in kinds.items()})
        encoded = encoder.transform(table, "the input")
        with torch.no_grad():
            embedding: Tensor = bottom(torch.from_numpy(encoded.codes), torch.from_numpy(encoded.numbers))
        return embedding

    def _release(self, frame: pd.DataFrame, party: str, present: dict[str, Tensor]) -> Tensor:
        """What a partner released, (n, width); notes which rows have it."""
        names = [*self._columns(party)]
        try:
            numbers = torch.from_numpy(frame[names].to_numpy(np.float64, copy=True, na_value=math.nan))
        except (TypeError, ValueError) as failure:
            raise DataError.expected(f"numbers in {names[0]}", failure) from None
        lacks = numbers.isnan()
        if bool((lacks.any(dim=1) & ~lacks.all(dim=1)).any()):
            raise DataError.expected(f"all {len(names)} numbers of a release of {party}, or none", "some of them")
        present[party] = ~lacks.all(dim=1)
        missing = math.nan if is_fitted(self._stated.section) else 0.0
        width = self._stated.widths[party]
        if party not in self._stated.grades:
            return numbers.float().nan_to_num(missing) if missing == 0.0 else numbers.float()
        grades = numbers.nan_to_num(0.0)[:, 0]
        if bool(((grades < 0) | (grades >= width) | (grades != grades.round())).any()):
            raise DataError.expected(f"whole numbers from 0 to {width - 1} in {names[0]}", "others")
        columns = columns_of_grades(grades.long(), width)
        return columns.masked_fill(~present[party][:, None], missing)


def _values(values: Sequence[Any], kind: RequestKind) -> list[Any]:
    """Values of a data frame as a request states them."""
    return [_value(value, kind) for value in values]


def _value(value: Any, kind: RequestKind) -> Any:
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    # A column of whole numbers with a gap is of floats in a data frame.
    return int(value) if kind == "category" and isinstance(value, float) and value.is_integer() else value


def _load_pyfunc(path: str) -> RegisteredModel:
    """Load an exported part; MLflow calls it by this name."""
    return RegisteredModel(load_part(Path(path)))
