"""Top models that are fitted at once, to one release of each row, instead of by gradient steps."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cutlayer.errors import CheckpointError, ConfigError
from cutlayer.models.base import TopModel
from cutlayer.models.top_estimators.choice import OWN_COLUMNS, Choice, choose_candidates, fit_part
from cutlayer.models.top_estimators.head import Head
from cutlayer.models.top_estimators.kinds import empty_part, fits_of
from cutlayer.models.top_estimators.layout import Layout, by_presence, present_sets
from cutlayer.models.top_estimators.quiet import restoring_process_state
from cutlayer.models.top_estimators.result import FitResult
from cutlayer.models.top_estimators.rows import FitRows, FittedPart, OwnColumns
from cutlayer.models.top_estimators.sample import Sample
from cutlayer.models.top_estimators.sections import AutoTopConfig, FittedConfig
from cutlayer.models.top_estimators.trees import MASKED_ROWS
from cutlayer.problem.inputs import Inputs
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.storage.json_values import parse_json
from cutlayer.storage.row_arrays import give_back_memory
from cutlayer.workers import map_in_threads

_CHUNK = 4096
"""Rows that are predicted together: what lies between columns and logits of more would leave the cache."""
_MAIN_WEIGHT = 0.25
_UNFITTED: Mapping[str, Any] = {"own": None, "categories": 0, "heads": []}


class FittedTop(TopModel):
    """A model of all columns, and one for each set of partners that may be all that answers.

    Each is fitted to all rows, those with a missing release included, and answers the rows that have all it reads.

    A fit ends in buffers, which any unfitted model of this class loads; predictions need no scikit-learn. Sets of up to
    3 partners all have a model of their own; of more partners all, all but one, all but two, and none. Any other set is
    answered by the model of the largest set within it.

    Attributes:
        fitted: What the fit chose; `None` before it.
        plan: Which party's columns are raw and which models there are, JSON in UTF-8, uint8; empty before the fit.

    Args:
        config: Section of the job.
        widths: Number of columns of each party, in the job's order.
        outputs: Number of logits.

    Raises:
        ConfigError: A class of the user's that may not, or cannot, be imported.
    """

    plan: Tensor

    def __init__(self, config: FittedConfig, widths: Mapping[str, int], outputs: int) -> None:
        super().__init__()
        self.config = config
        self.widths = dict(widths)
        self.outputs = outputs
        self._fits = fits_of(config)
        self.register_buffer("plan", torch.zeros(0, dtype=torch.uint8))
        self.heads = nn.ModuleList()
        self._layout = Layout(self.widths, None, 0)
        self._sets: tuple[frozenset[str], ...] = ()
        self.fitted: FitResult | None = None
        self.register_load_state_dict_post_hook(_check_answers)  # type: ignore[no-untyped-call]

    def fit(
        self,
        columns: Mapping[str, Tensor],
        labels: Tensor,
        loss: TrainingLoss,
        *,
        own: str | None,
        inputs: Inputs,
        seed: int,
        weights: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> FitResult:
        """Fit to the training rows; the same seed and rows give the same model.

        Args:
            columns: Columns of each party, float32 (n, width), in the job's order; a row of NaN is one that a partner
                sent nothing for.
            labels: int64 (n,) class codes, or floating (n,) targets.
            loss: Loss of the labels. With a `transition` the labels are drawn ones, and predictions are of the true
                ones; otherwise `class_weights` count.
            own: Party whose columns are category codes, then numbers, as they are; `None` if the label owner has none.
            inputs: Shape of these columns.
            seed: Seed of the whole fit.
            weights: Weight of each row, (n,), 0 or more.
            groups: Group of each row, int64 (n,), which no fold of the cross-validation divides.

        Raises:
            ConfigError: There is no row, or a user's estimator fails.
        """
        if not len(labels):
            raise ConfigError.expected("a training row", "none", "check train.split")
        layout = Layout(self.widths, own, len(inputs.cardinalities) if own else 0)
        sample = Sample.of(layout, columns, labels, loss, inputs.cardinalities if own else (), weights, groups, seed)
        with restoring_process_state():
            return self._fitted(sample, seed % 2**32)

    def _fitted(self, sample: Sample, seed: int) -> FitResult:
        complete = {names: sample.complete(names) for names in present_sets(sample.layout.partners)}
        sets = tuple(names for names, rows in complete.items() if rows.any())
        choices: dict[frozenset[str], Choice] = {}
        # Own columns alone have a choice of their own: they are the reference for what partners add.
        for present in dict.fromkeys((frozenset(), sets[0])):
            own = choices[frozenset()].held_out if choices and self._weighs_own(sample) else None
            choices[present] = choose_candidates(
                sample.rows(present),
                sample.labels,
                sample.loss.task,
                self._fits,
                self.config.folds,
                seed,
                complete[present],
                sample.groups,
                own,
            )
        alone = self._head(frozenset(), choices[frozenset()].weights, sample, seed)
        chosen = choices[sets[0]].weights
        heads = [
            self._head(present, chosen if present == sets[0] else _main_weights(chosen), sample, seed, alone)
            if present
            else alone
            for present in sets
        ]
        results = {}
        for present, choice in choices.items():
            rows = sample.rows(present)
            results[present] = FitResult(
                chosen=choice.chosen,
                candidates=choice.candidates,
                folds=choice.folds,
                rows=len(rows),
                loss=_training_loss(heads[sets.index(present)], rows, sample),
            )
        whole = results[sets[0]]
        if len(sets) > 1:
            whole = whole.model_copy(update={"alone": results[frozenset()]})
        self._assign(sample.layout, sets, heads, whole)
        return whole

    def _weighs_own(self, sample: Sample) -> bool:
        """Whether models of the label owner's columns alone compete with those of all columns."""
        return isinstance(self.config, AutoTopConfig) and bool(self.widths.get(sample.layout.own or "", 0))

    def _head(
        self,
        present: frozenset[str],
        weights: Mapping[str, float],
        sample: Sample,
        seed: int,
        alone: Head | None = None,
    ) -> Head:
        """Fit a model of a set of partners by the weights of the candidates; those of own columns are fitted already.

        Args:
            present: The set.
            weights: Weight of each candidate.
            sample: Training rows.
            seed: Seed of the fits.
            alone: Model of own columns alone.
        """
        rows, shares = sample.rows(present), list[float]()
        parts: list[FittedPart] = []
        for name, weight in weights.items():
            if name != OWN_COLUMNS or alone is None:
                give_back_memory()  # what candidates, or the model before, needed
                parts.append(fit_part(self._fits[name], rows, seed))
                shares.append(weight)
                continue
            for part, share in zip(alone.parts, alone.weights.tolist(), strict=True):
                parts.append(OwnColumns(copy.deepcopy(part)))
                parts[-1].hold(numbers=sample.layout.own_numbers(present))
                shares.append(weight * share)
        return Head.of(parts, shares, sample.loss.transition)

    def _assign(self, layout: Layout, sets: Sequence[frozenset[str]], heads: Sequence[Head], result: FitResult) -> None:
        """Take over fitted heads, on the device of this model."""
        stated = [
            {"present": sorted(present), "parts": [part.kind for part in head.parts]}
            for present, head in zip(sets, heads, strict=True)
        ]
        plan = {"own": layout.own, "categories": layout.categories, "heads": stated}
        text = json.dumps({**plan, "result": result.model_dump()})
        device = self.plan.device
        self.plan = torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)
        self.heads = nn.ModuleList(heads).to(device).eval()
        self._layout = layout
        self._sets = tuple(sets)
        self.fitted = result

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` ran, or the state of a fitted model was loaded."""
        return bool(self._sets)

    @property
    def extra_heads(self) -> Sequence[nn.Module]:
        """The models for sets with an absent partner."""
        return tuple(self.heads)[1:]

    @property
    def own(self) -> str | None:
        """Party whose columns are category codes, then numbers, as they are."""
        return self._layout.own

    @property
    def categories(self) -> int:
        """Number of its category codes."""
        return self._layout.categories

    def all_columns(self, embeddings: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Codes, int64 (n, c), and numbers, float32 (n, m), of all parties, as the model of all columns reads them."""
        return self._layout.read(embeddings, self._sets[0])

    def forward(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        """Logits of the model of all columns; see `TopModel.forward`."""
        return self._answer(0, embeddings)

    def answer(self, embeddings: Mapping[str, Tensor], present: Collection[str]) -> Tensor:
        """Logits of the model of the largest fitted set of parties that are all present; see `TopModel.answer`.

        Of a row that a party sent nothing for, which is NaN, that party is not present.
        """
        sent = {name: embeddings[name] for name in self._layout.partners if name in present}
        logits: Tensor | None = None
        for names, rows in by_presence(sent):
            index = next((at for at, fitted in enumerate(self._sets) if fitted <= names), 0)
            if rows is None:
                return self._answer(index, embeddings)
            part = self._answer(index, {name: columns[rows] for name, columns in embeddings.items()})
            logits = part.new_empty(len(next(iter(sent.values()))), part.shape[1]) if logits is None else logits
            logits[rows] = part
        if logits is None:
            raise ConfigError.expected("a row to predict", "none")
        return logits

    def answer_rows(
        self, embeddings: Mapping[str, Tensor], present: Collection[str], rows: Mapping[str, Tensor]
    ) -> Tensor:
        """Logits of rows that some of the parties lack, whose releases of these are NaN; see `TopModel.answer_rows`."""
        return self.answer(embeddings, present) if rows else super().answer_rows(embeddings, present, rows)

    def _answer(self, index: int, embeddings: Mapping[str, Tensor]) -> Tensor:
        if not self.is_fitted:
            raise ConfigError.expected("a fitted top model", "one before its fit", "call fit, or load a fitted state")
        codes, numbers = self._layout.read(embeddings, self._sets[index])
        head = self.heads[index]
        if torch.compiler.is_compiling():  # a program has no loop over an unknown number of rows
            return self._logits(head(codes, numbers))
        pieces = [*zip(torch.split(codes, _CHUNK), torch.split(numbers, _CHUNK), strict=True)]
        has_gradient = torch.is_grad_enabled()  # which is a setting of this thread

        def answered(piece: tuple[Tensor, Tensor]) -> Tensor:
            try:
                with torch.set_grad_enabled(has_gradient):
                    return self._logits(head(*piece))
            except IndexError as damage:  # of a state from a file: codes are within those of the encoders
                wanted = "a top model that knows all codes of its rows"
                raise CheckpointError.expected(wanted, damage, "restore it, or train again") from None

        return torch.cat(map_in_threads(answered, pieces) if codes.device.type == "cpu" else [*map(answered, pieces)])

    def _logits(self, predicted: Tensor) -> Tensor:
        if predicted.shape[1] == 2 and self.outputs == 1:
            predicted = predicted[:, 1:] - predicted[:, :1]
        return predicted.float()

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Make the models that a state is of; `load_state_dict` then fills them."""
        saved = state_dict.get(prefix + "plan")
        if saved is not None:
            self.plan = self.plan.new_empty(saved.shape)
            try:
                self._plan(parse_json(saved.cpu().numpy().tobytes()) if len(saved) else _UNFITTED, len(state_dict))
            except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as damage:
                raise RuntimeError(f"a plan that is damaged ({damage!r:.100})") from None
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _plan(self, plan: Any, tensors: int) -> None:
        parts = [head["parts"] for head in plan["heads"]]
        # A model takes a thousand times the memory of its name.
        if sum(map(len, parts)) + len(parts) > tensors:
            raise ValueError("more models than tensors")
        heads = [Head(empty_part(kind, self.config) for kind in kinds) for kinds in parts]
        self.heads = nn.ModuleList(heads).to(self.plan.device)
        self._sets = tuple(frozenset(head["present"]) for head in plan["heads"])
        self._layout = Layout(self.widths, plan["own"], plan["categories"])
        self.fitted = FitResult(**plan["result"]) if "result" in plan else None


def _check_answers(top: FittedTop, keys: Any) -> None:
    """Refuse a state whose tensors do not fit each other, which come with their shapes: each model answers rows.

    Raises:
        RuntimeError: One does not, as `load_state_dict` raises it.
    """
    if keys.missing_keys or keys.unexpected_keys:  # which `load_state_dict` says
        return
    for rows in (7, MASKED_ROWS + 7):  # which trees answer in two ways
        given = {name: torch.zeros(rows, width, device=top.plan.device) for name, width in top.widths.items()}
        try:
            shapes = {tuple(top._answer(index, given).shape) for index in range(len(top._sets))}
        except (CheckpointError, RuntimeError, ValueError, IndexError, TypeError) as damage:
            raise RuntimeError(f"tensors that do not fit each other ({damage!r:.200})") from None
        if shapes - {(rows, top.outputs)}:
            raise RuntimeError(f"tensors that do not answer by {top.outputs:,} numbers a row")


def _main_weights(weights: Mapping[str, float]) -> Mapping[str, float]:
    """The weights that matter most: sets with an absent partner, of which there are many, have no lesser part."""
    most = {name: weight for name, weight in weights.items() if weight >= min(_MAIN_WEIGHT, max(weights.values()))}
    return {name: weight / sum(most.values()) for name, weight in most.items()}


def _training_loss(head: Head, rows: FitRows, sample: Sample) -> float:
    some = np.arange(len(rows))[:: -(-len(rows) // _CHUNK)]
    labels = sample.labels[torch.from_numpy(some)]
    return float(sample.loss(head.logits(rows.take(some), sample.loss.task), labels))
