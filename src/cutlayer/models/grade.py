"""The `grade` kind: a band of the score of a party's own model, in place of an embedding."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.kernels.noise.aes import encrypt_blocks
from cutlayer.kernels.noise.informative_rows import MAX_EPSILON
from cutlayer.kernels.rows.grade_columns import columns_of_grades
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.models.base import BottomModel
from cutlayer.models.sections import BottomKind
from cutlayer.models.top_estimators.sections import AutoTopConfig
from cutlayer.problem.inputs import Inputs
from cutlayer.storage.json_values import parse_json

if TYPE_CHECKING:
    from cutlayer.models.top_estimators.head import Head

_CHUNK = 8192


class GradeBottomConfig(FrozenModel):
    """One grade of a few a row, in place of an embedding: a band of the score of the partner's own model.

    The model is fitted by `fit: {kind: grade}` to labels that the label owner draws and sends once, or without labels
    by `fit: {kind: cells}`. See [grades](../how-to/grades.md).

    Attributes:
        grades: Maximum number of grades; noise leaves fewer.
        of: What they are of. `labels`: drawn labels, by `fit: {kind: grade}`. `columns`: the party's columns alone, by
            `fit: {kind: cells}`, for which it is sent no label.
        least_rows: Number of informative rows that the drawn labels must be worth before they are sent; 0 sends any.
        label_epsilon: Largest epsilon of the drawn labels, on which all parties agree. The label owner states one with
            its labels, and by a larger one they could be anything: the partner refuses them.
    """

    kind: Literal["grade"] = "grade"
    grades: int = Field(default=16, ge=2, le=16, strict=True)
    of: Literal["labels", "columns"] = "labels"
    least_rows: int = Field(default=200, ge=0, strict=True)
    label_epsilon: float = Field(default=MAX_EPSILON, ge=0)


class GradeBottom(BottomModel):
    """Grades rows by models of one design, each fitted without a fold of the training rows.

    A row is of a fold by its id, and is scored by the model that was fitted without this fold, whether it was a
    training row or not: no model that scores a row was fitted to its label, and a row that is graded again by the
    same values has the same grade. All labels have a part in the weights of the models and in the borders.

    Grades of two classes, or of a number, are in the order of the score; those of several classes are the nearest of
    some centres. They leave as one column for each grade: 1 from this grade on.

    Attributes:
        width: Number of columns, which is the most grades.
        grades: Number of grades that there are after a fit; 1 before.
        plan: Kinds of the models, JSON in UTF-8, uint8; empty before a fit.
        borders: Scores between two grades, float64 (grades - 1,), or centres, float64 (grades, classes).
        fold_key: 32 bytes that folds are drawn by, uint8.
        known: Training rows of a fit in this process, ascending, and their grades, int64 (n,) each, which the fit has
            scored already; `None` after they were taken.
        redivide: Divides the scores of a fit in this process into the grades for a draw at another epsilon; `None`
            without one, or where the fit is private.

    Args:
        config: Section of the job.
        inputs: Columns that it reads.
    """

    plan: Tensor
    borders: Tensor
    fold_key: Tensor

    def __init__(self, config: GradeBottomConfig, inputs: Inputs) -> None:
        super().__init__()
        self.most = self.width = config.grades
        self.register_buffer("plan", torch.zeros(0, dtype=torch.uint8))
        self.register_buffer("borders", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("fold_key", torch.zeros(32, dtype=torch.uint8))
        self.heads = nn.ModuleList()
        self.known: tuple[Tensor, Tensor] | None = None
        self.redivide: Callable[[float], object] | None = None

    @property
    def grades(self) -> int:
        """Number of grades after a fit."""
        return len(self.borders) + (1 if self.borders.dim() == 1 else 0)

    def assign(self, heads: Sequence[Head], borders: Tensor) -> None:
        """Take over fitted models, one for each fold, and the borders of the grades.

        Args:
            heads: Models that give log probabilities of the classes, or values.
            borders: As the attribute.
        """
        text = json.dumps([[part.kind for part in head.parts] for head in heads])
        self.plan = torch.tensor(list(text.encode()), dtype=torch.uint8)
        self.heads, self.borders, self.known = nn.ModuleList(heads).eval(), borders.double(), None

    def folds(self, digests: Tensor, count: int) -> Tensor:
        """Fold of each row, int64 (n,), by the digest of its id, uint8 (n, 16)."""
        words = encrypt_blocks(bytes(self.fold_key.tolist()), digests.numpy()).view("<u8")[:, 0]
        return torch.from_numpy((words % np.uint64(max(count, 1))).astype(np.int64))

    def scores(self, codes: Tensor, numbers: Tensor, folds: Tensor | None) -> Tensor:
        """Scores of rows, float64 (n, d): a log odds or a value, or log probabilities of several classes.

        Args:
            codes: int32 (n, c).
            numbers: float32 (n, m).
            folds: Fold of each row, int64 (n,); `None` for the mean of all models.
        """
        pieces = []
        for start in range(0, max(len(codes), 1), _CHUNK):
            at = slice(start, start + _CHUNK)
            if folds is None:
                scored = [score_of(head(codes[at].long(), numbers[at])) for head in self.heads]
                pieces.append(torch.stack(scored).mean(0))
                continue
            parts = [start + torch.nonzero(folds[at] == fold)[:, 0] for fold in range(len(self.heads))]
            scored = [
                score_of(head(codes[rows].long(), numbers[rows]))
                for head, rows in zip(self.heads, parts, strict=True)
                if len(rows)
            ]
            pieces.append(torch.cat(scored)[torch.cat(parts).argsort()])
        return torch.cat(pieces)

    def grade(self, codes: Tensor, numbers: Tensor, digests: Tensor | None) -> Tensor:
        """Grade of each row, int64 (n,); arguments as of `of_rows`."""
        if not len(self.heads) or not len(codes):
            return torch.zeros(len(codes), dtype=torch.int64, device=codes.device)
        folds = None if digests is None else self.folds(digests, len(self.heads))
        return self.bands(self.scores(codes, numbers, folds))

    def bands(self, scores: Tensor) -> Tensor:
        """Grades of scores, as `scores` returns them, int64 (n,)."""
        if self.borders.dim() == 1:
            return torch.searchsorted(self.borders, scores[:, 0].contiguous(), right=True)
        return torch.cdist(scores, self.borders).argmin(dim=1)

    def of_rows(self, codes: Tensor, numbers: Tensor, digests: Tensor | None) -> Tensor:
        """Grades of rows as columns, float32 (n, width); see `BottomModel.of_rows`."""
        return columns_of_grades(self.grade(codes, numbers, digests), self.width)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Grades of rows of which no id is known, by the mean of all models; see `BottomModel.forward`."""
        return self.of_rows(codes, numbers, None)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Make the models that a state is of; `load_state_dict` then fills them."""
        from cutlayer.models.top_estimators.head import Head
        from cutlayer.models.top_estimators.kinds import empty_part

        self.known = self.redivide = None
        saved, borders = state_dict.get(prefix + "plan"), state_dict.get(prefix + "borders")
        if saved is not None and borders is not None:
            try:
                kinds = parse_json(saved.cpu().numpy().tobytes()) if len(saved) else []
                grades = borders.shape[:1].numel() + (borders.dim() == 1)
                if sum(map(len, kinds)) + len(kinds) > len(state_dict) or grades > self.most or borders.isnan().any():
                    raise ValueError("more models than tensors, more grades than columns, or borders that are none")
                self.heads = nn.ModuleList(Head(empty_part(kind, AutoTopConfig()) for kind in parts) for parts in kinds)
            except (KeyError, TypeError, AttributeError, ValueError) as damage:
                raise RuntimeError(f"a plan that is damaged ({damage!r:.100})") from None
            self.plan, self.borders = self.plan.new_empty(saved.shape), self.borders.new_empty(borders.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def score_of(predicted: Tensor) -> Tensor:
    """Scores, as of `GradeBottom.scores`, of log probabilities (n, classes) or values (n, 1)."""
    return predicted[:, 1:] - predicted[:, :1] if predicted.shape[1] == 2 else predicted


GRADE_BOTTOM = BottomKind(GradeBottomConfig, GradeBottom, width=lambda section: section.grades)
