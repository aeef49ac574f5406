"""Label differential privacy: training labels go through randomised response, once."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from cutlayer.accounting import Event, RandomizedResponse, ReleasePlan
from cutlayer.config import FrozenModel, Job, validated
from cutlayer.config.phases import Phase
from cutlayer.errors import ConfigError, DataError
from cutlayer.kernels.noise.label_levels import levels_for, rounded_levels
from cutlayer.kernels.noise.randomized_response import flip_probability, randomized_response, transition_matrix
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import LabelProtection
from cutlayer.protections.label_memory.memory import Choice, Drawn
from cutlayer.storage.row_arrays import computed_rows
from cutlayer.storage.row_tensors import number_differing

if TYPE_CHECKING:
    from cutlayer.protections.label_memory.memory import Recalled


Labels = TypeVar("Labels", npt.NDArray[Any], Tensor)


class LabelDPConfig(FrozenModel):
    """Privacy of a label, and the treatment of labels that changed.

    Attributes:
        eps: Privacy of a label, 0 or more. 0 is a coin flip, 1 flips 27 % of binary labels, 5 flips 0.7 %.
        changed_labels: Action if a row's label differs from the label that an earlier training drew for.
            `refuse`: stop before any gradient is sent. `keep`: the row keeps its old draw. `redraw`: each new training
            draws every row anew, and the eps of all of them add up. Rows without ids have no draws of their own: one
            changed label makes another table, which `keep` refuses too, and `redraw` draws anew.
        correction: Loss of the training on drawn labels. `forward` states their likelihood, so that predictions are
            calibrated for the true label. `none` takes drawn labels for true ones; predictions then tend to the
            probabilities of the drawn label.
        range: Lowest and highest value of a number, for labels that are numbers: public knowledge, never taken from the
            rows. Numbers beyond it count as its ends.
    """

    eps: float = Field(ge=0, strict=True)
    changed_labels: Choice = "refuse"
    correction: Literal["forward", "none"] = "forward"
    range: tuple[float, float] | None = None

    def _faults(self) -> Iterator[str]:
        if self.range is not None and not self.range[0] < self.range[1]:
            yield f"range with its lowest value first, got {list(self.range)}"


class LabelDP(LabelProtection[LabelDPConfig]):
    """Replace each training label by randomised response before training sees it.

    Of n classes a label is kept with probability e^eps / (n - 1 + e^eps), else another class is drawn uniformly; a
    binary label flips with probability 1 / (1 + e^eps). The draw is a keyed function of the row's id: the same in every
    epoch, after a resume and in the next training on the same secret. Evaluation rows keep their true labels.

    The task loss corrects for the known flip rate: the model learns the true label's probability, and the loss is the
    likelihood of the drawn labels (`forward_corrected_loss`). It reads the drawn labels only, so eps is the same.

    A label that is corrected between two trainings would be the only one whose draw changes, and the change would show
    with certainty (the known limit of memoised randomised response). So a run remembers under its secret which label
    each row was drawn for, and `changed_labels` says what is done about a change. Where rows have no ids, all labels of
    the table are part of every draw, and the table is remembered as a whole. With ids a run with a supplied key
    remembers nothing, nor do calls: they are reproducible. For privacy over changing labels use another key for each.

    A label that is a number is first rounded at random to one of a few levels of its stated `range`, so that its
    expectation stays, and the level is drawn (`kernels.noise.label_levels`): for partners that fit models to drawn
    labels, and no other use.

    Reference: Warner 1965, Randomized response; Ghazi et al. 2021, Deep learning with label differential privacy
    (arXiv 2102.06062), section 1, for training on it; MindSpore Federated's label_dp has
    the same probabilities but redraws in every batch. Patrini et al. 2017 (arXiv 1609.03683), section 4.2, for the
    loss.

    Guarantee: eps-label differential privacy per row for the whole run, however many epochs, while the secret stays
    with the label's owner. Neighbours differ in one row's label; all else is post-processing. Where several rows have
    one id, one of them is drawn (`kernels.noise.one_of_each`). Neighbours then differ in all labels of an id, and
    in their number as long as one is left. Its label is a mixture of draws of eps. Over several trainings
    it holds for each row's first label with `refuse` and `keep`. With `redraw` it holds for all its labels, at the sum
    of the eps. Trainings that did not end, and drew other labels, are counted in the next.

    Args:
        settings: A `LabelDPConfig`, or its eps alone.
        key: 16 bytes or more that stay with the label's owner, another for each label column; only for calls, since a
            run has its own. By default 32 fresh bytes from the operating system.
        eps: The eps by name, as in MindSpore Federated's call; in place of `settings`.

    Raises:
        ConfigError: eps is below 0 or no number, or both or neither of `settings` and `eps` are given.

    >>> import numpy as np
    >>> flipped = LabelDP(eps=1.0)(np.zeros(10_000))
    >>> flipped.shape, flipped.dtype, bool(0.25 < flipped.mean() < 0.29)
    ((10000,), dtype('float64'), True)

    Advice: the only noise on labels with a theorem (docs/results/label-dp.md).
    """

    name = "label_dp"
    config = LabelDPConfig
    reference = "Warner 1965; Ghazi et al. 2021 (arXiv 2102.06062), section 1"
    start = LabelDPConfig(eps=1.0)
    rank = 10
    on_cpu = True
    counters = ("rows", "labels_flipped")

    def __init__(
        self, settings: LabelDPConfig | float | None = None, key: bytes | None = None, *, eps: float | None = None
    ) -> None:
        if (settings is None) == (eps is None):
            got = "neither" if eps is None else "both"
            raise ConfigError.expected("either settings or eps of label_dp", got, "write LabelDP(eps=1.0)")
        settings = eps if settings is None else settings
        if not isinstance(settings, LabelDPConfig):
            settings = validated(LabelDPConfig, {"eps": settings}, self.name)
        super().__init__(settings)
        self._key = secrets.token_bytes(32) if key is None else key
        self._recalled: Recalled | None = None
        if settings.eps == 0:
            warnings.warn("label_dp at eps 0 is a coin flip: the labels carry nothing to learn", stacklevel=2)

    def labels(self, y: Tensor, ids: Tensor) -> Tensor:
        """Draw the protected labels: int64 (n,) codes and uint8 (n, 16) id digests in, codes out."""
        context, eps, classes = self.context, self.settings.eps, self.values
        if self.settings.range is not None:
            y = rounded_levels(y, self.settings.range, classes, ids, context.secret, context.label_column)
        codes, draws = y, ""
        if context.label_memory is not None:
            of = Drawn(context.label_column, eps, classes)
            names = context.task.classes if context.task is not None else ()
            self._recalled = context.label_memory.recall(y, ids, of, self.settings.changed_labels, names)
            codes, draws = self._recalled.codes, self._recalled.draws
        key = classes, eps, context.secret, context.label_column, draws
        pieces = computed_rows(len(y), np.int64, lambda part: randomized_response(codes[part], ids[part], *key).numpy())
        drawn = torch.from_numpy(pieces)
        # Set and not added to: a resume draws the same labels once more.
        self.counts = {"rows": len(y), "labels_flipped": number_differing(drawn, y)}
        return drawn

    @property
    def values(self) -> int:
        """Number of values that a drawn label can have: of the classes, or of the levels of a number."""
        return self.classes if self.settings.range is None else levels_for(self.settings.eps)

    def faults(self, job: Job, party: str) -> Iterator[str]:
        """Numbers are drawn in a stated range, and for models of partners alone."""
        where = f"parties.{party}.privacy.{self.name}"
        if job.task != "regression" and self.settings.range is not None:
            yield f"expected no {where}.range with classes, got one; leave it out"
        if job.task == "regression" and Phase.LABELS not in job.phases:
            graded = "or let a partner grade rows, model.bottom: {kind: grade}"
            yield f"expected {where} on a task of kind binary or multiclass, got regression; leave it out, {graded}"
        elif job.task == "regression" and self.settings.range is None:
            yield f"expected {where}.range, the lowest and highest label there may be, got none; state it: [0, 1000]"

    @property
    def draws(self) -> str | None:
        """Name of the memory and its generation; `None` with a supplied key and ids."""
        return None if self._recalled is None else self._recalled.draws

    @property
    def transition(self) -> Tensor | None:
        """Probabilities of the drawn classes (columns) given the true ones (rows); `None` without correction."""
        return transition_matrix(self.settings.eps, self.values) if self.settings.correction == "forward" else None

    def begin(self) -> None:
        """Record that the draws are about to be used."""
        if self._recalled is not None and self.context.label_memory is not None:
            self.context.label_memory.begin(self._recalled)

    def end(self) -> None:
        """Record that a run with these draws has ended."""
        if self._recalled is not None and self.context.label_memory is not None:
            self.context.label_memory.end(self._recalled)

    @property
    def _drawn_times(self) -> int:
        """Independent draws of one row's label: this run's, and those of runs that did not end."""
        return 1 + (self._recalled.unfinished if self._recalled is not None else 0)

    def __call__(self, labels: Labels, ids: Sequence[Any] | npt.NDArray[Any] | None = None) -> Labels:
        """Protect labels outside a run.

        With `ids` the draw is a function of key, id, eps and label: the same ids under the same key repeat it, and all
        calls together cost eps per row. Without, every call is a fresh draw: k calls on the same rows cost k eps, and a
        majority vote over them recovers the labels.

        Args:
            labels: Array or tensor of shape (n,) or (n, 1) with 0 and 1, or one-hot (n, classes).
            ids: n distinct row ids, integers or text.

        Returns:
            Protected labels of the same type, dtype and shape.

        Raises:
            DataError: The labels have another form, or the ids do not fit.
            ConfigError: The key is shorter than 16 bytes.
        """
        values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
        codes, classes = _recognised(values)
        truth, digests, eps = torch.from_numpy(codes), _digests(ids, len(codes)), self.settings.eps
        drawn = randomized_response(truth, digests, classes, eps, self._key, "").numpy()
        one_hot = values.ndim == 2 and values.shape[1] > 1
        out = (np.eye(classes)[drawn] if one_hot else drawn.reshape(values.shape)).astype(values.dtype)
        return torch.from_numpy(out).to(labels.device) if isinstance(labels, Tensor) else out

    def event(self, plan: ReleasePlan) -> Event:
        """One randomised response per row for the whole run, and one for each run that did not end."""
        return RandomizedResponse(self.settings.eps, self.values, self._drawn_times)

    def metrics(self) -> Mapping[str, float]:
        """Rows drawn, labels flipped, their share, and the share to expect."""
        old_draws = self._recalled.old_draws if self._recalled is not None else 0
        return {
            **self.counts,
            "flipped_share": self.counts["labels_flipped"] / max(self.counts["rows"], 1),
            "expected_share": flip_probability(self.settings.eps, self.values),
            **({"draws": self._drawn_times} if self._drawn_times > 1 else {}),
            **({"old_draws_kept": old_draws} if old_draws else {}),
        }


def _recognised(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], int]:
    """Class codes (n,) and the number of classes."""
    shape, wanted = values.shape, "labels of shape (n,) or (n, 1) with 0 and 1, or one-hot rows (n, classes)"
    if values.ndim not in (1, 2) or values.dtype.kind not in "biuf":
        raise DataError.expected(wanted, f"{values.dtype} of shape {shape}")
    if not bool(((values == 0) | (values == 1)).all()):
        raise DataError.expected(wanted, "other numbers", "more than two classes are one-hot")
    if values.ndim == 1 or shape[1] == 1:
        return values.reshape(-1).astype(np.int64), 2
    if shape[1] == 0 or not bool((values.sum(1) == 1).all()):
        raise DataError.expected(wanted, f"rows of shape {shape} that do not hold exactly one 1")
    return values.argmax(1).astype(np.int64), shape[1]


def _digests(ids: Sequence[Any] | npt.NDArray[Any] | None, count: int) -> Tensor:
    """A digest per row: of its id, or a fresh one that no other call draws."""
    import pyarrow as pa

    from cutlayer.data.ids import DIGEST_BYTES, row_digests

    if ids is None:
        drawn = np.frombuffer(bytearray(secrets.token_bytes(DIGEST_BYTES * count)), np.uint8)
        return torch.from_numpy(drawn.reshape(count, DIGEST_BYTES))
    if len(ids) != count:
        raise DataError.expected(f"{count} ids, one per label", len(ids))
    return torch.from_numpy(row_digests(pa.array(ids), "ids"))
