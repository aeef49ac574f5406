"""Labels that are drawn in stages, each with a prior from the model of the earlier ones (LP-MST)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from cutlayer.errors import ConfigError
from cutlayer.kernels.noise import derive, encrypt_blocks
from cutlayer.kernels.prior_response import likely_classes, prior_likelihood, randomized_response_with_prior
from cutlayer.kernels.randomized_response import flip_probability, randomized_response
from cutlayer.kernels.row_tensors import copied, filled_rows, number_differing, number_equal, rows_of
from cutlayer.lazy import Tensor, torch
from cutlayer.storage.row_arrays import chosen, chunks_of, computed

if TYPE_CHECKING:
    from cutlayer.protections.label_memory import Drawn


UNDRAWN = -1
"""In place of a label that has not been drawn yet."""
Correction = Literal["forward", "none"]


def parts_of_rows(digests: Tensor, parts: int, secret: bytes, column: str, draws: str) -> Tensor:
    """Divide rows into parts by a keyed draw that depends on nothing but each row's own id.

    Args:
        digests: Digests of the row ids, uint8 (n, 16).
        parts: 1 or more; a row is in each with the same probability.
        secret: 16 bytes or more that stay with the label's owner.
        column: Name of the label column.
        draws: Name of the draws.

    Returns:
        Part of each row, from 0, int64 (n,).
    """
    key = derive(secret, b"cutlayer label stages", column.encode(), draws.encode())
    plain = digests.numpy()

    def piece(part: slice) -> npt.NDArray[np.int64]:
        words = encrypt_blocks(key, plain[part]).view("<u8")[:, 0]
        return (words % np.uint64(parts)).astype(np.int64)

    return torch.from_numpy(computed(len(plain), np.int64, piece))


class LabelStages:
    """Labels in several parts, of which one is drawn at the start of each stage of the training.

    Part 0 is drawn by plain randomised response before the first epoch. In the epoch before a later stage the caller
    predicts the rows of its part (`predicted`); the stage draws each of their labels once, from the classes that are
    likely by that prediction (RRWithPrior). Until then a row has no label and no effect on the loss.

    Where this differs from the paper: the model of the earlier stages goes on instead of being trained anew, the prior
    is what it predicted when the row was last in a batch, and the parts are drawn row by row, so that their sizes vary.

    Reference: Ghazi et al. 2021, Deep learning with label differential privacy (arXiv 2102.06062), algorithm 3.

    Guarantee: eps-label differential privacy of each row (neighbours differ in the label of one row, of part k). The
    parts depend on ids and the secret alone. Up to stage k all that is released, or drawn, is a function of other rows'
    draws: row i's label has no effect before it is drawn, on the loss or on the prior, and its prediction reads
    features and weights. So under both neighbours the earlier stages have the same distribution, and given them the row
    has the same likely classes, from which one draw costs eps (RRTop-k). Later stages read that draw, never the label:
    they are post-processing. A receiver that steers the predictions chooses among draws that each cost eps. It holds
    as long as a row is drawn from one set of likely classes alone, which `remembered` ensures through resumes.

    Args:
        codes: Class codes to draw for, int64 (n,).
        digests: Digests of the row ids, uint8 (n, 16).
        of: The label column, eps, the number of classes and that of the stages.
        epochs: Number of epochs of the schedule.
        secret: 16 bytes or more that stay with the label's owner.
        draws: Name of the draws, another for each training.
        correction: Whether `likelihood` is that of the draws, or takes drawn labels for true ones.
        remembered: Given a stage, the digests of its rows and their likely classes, returns the likely classes of the
            first call for that stage, which are on disk by then.

    Raises:
        ConfigError: Fewer epochs than stages.

    Attributes:
        drawn: Drawn labels, `UNDRAWN` where there is none, int64 (n,).
        likelihood: Probability of each row's drawn label by its true class, float64 (n, classes); the same for all
            classes in a row whose label is not drawn, or was drawn from a single class.
    """

    def __init__(
        self,
        codes: Tensor,
        digests: Tensor,
        of: Drawn,
        *,
        epochs: int,
        secret: bytes,
        draws: str,
        correction: Correction = "forward",
        remembered: Callable[[int, Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        stages = of.stages
        if stages > epochs:
            remedy = "lower stages of label_dp or train longer"
            raise ConfigError.expected(f"train.epochs of {stages} or more, one for each stage", epochs, remedy)
        self._codes, self._digests, self._of = codes, digests, of
        self._secret, self._draws, self._correction, self._remembered = secret, draws, correction, remembered
        self.starts = tuple(stage * epochs // stages for stage in range(stages))
        self._parts = parts_of_rows(digests, stages, secret, of.column, draws)
        self._prior = filled_rows(len(codes), of.classes, 1, torch.float32)
        self._likely = filled_rows(len(codes), of.classes, 1, torch.bool)
        self.drawn = filled_rows(len(codes), 1, UNDRAWN, torch.int64).view(-1)
        self.likelihood = filled_rows(len(codes), of.classes, 1, torch.float64)

    def begin(self, epoch: int) -> int:
        """Draw the labels of all stages that start by an epoch and were not drawn; returns how many of them flipped."""
        flipped = 0
        for stage, start in enumerate(self.starts):
            if start > epoch:
                continue
            rows = self._chosen(partial(self._is_due, stage))
            if len(rows):
                self._draw(stage, rows)
                flipped += sum(int((self.drawn[own] != self._codes[own]).sum()) for own in _pieces(rows))
        return flipped

    def _is_due(self, stage: int, part: slice) -> Tensor:
        return (self._parts[part] == stage) & (self.drawn[part] == UNDRAWN)

    def awaits(self, epoch: int, rows: Tensor) -> Tensor:
        """Which of some rows need a prediction in an epoch, since their label is drawn at its end: bool (n,)."""
        if epoch + 1 not in self.starts:
            return torch.zeros(len(rows), dtype=torch.bool)
        return self._parts[rows] == self.starts.index(epoch + 1)

    def predicted(self, rows: Tensor, probabilities: Tensor) -> None:
        """Note the prior of some rows.

        Args:
            rows: Numbers of rows among those that labels are drawn for, int64 (m,).
            probabilities: Predicted probabilities of the classes, float (m, classes).
        """
        self._prior[rows] = probabilities.float()

    @property
    def rows(self) -> int:
        """Number of rows whose label is drawn."""
        return len(self.drawn) - number_equal(self.drawn, UNDRAWN)

    @property
    def flipped(self) -> int:
        """Number of drawn labels that differ from the true ones."""
        return number_differing(self.drawn, self._codes) - number_equal(self.drawn, UNDRAWN)

    @property
    def constant(self) -> int:
        """Number of drawn labels that had a single likely class, and so do not depend on the true label."""
        return int(self._sizes()[0][1])

    @property
    def expected_flips(self) -> float:
        """Number of drawn labels that differ from the true ones in the mean over all draws."""
        sizes, inside = self._sizes()
        total = float(sizes.sum() - inside.sum())
        for size, count in enumerate(inside.tolist()):
            total += count * flip_probability(self._of.eps, size) if count else 0.0
        return total

    def _sizes(self) -> tuple[Tensor, Tensor]:
        """Number of drawn rows by that of their likely classes: all, and those whose true class is among these."""
        every, inside = (torch.zeros(self._of.classes + 1, dtype=torch.int64) for _ in range(2))
        for rows in _pieces(self._chosen(lambda part: self.drawn[part] != UNDRAWN)):
            likely = self._likely[rows]
            sizes, true = likely.sum(1), likely.gather(1, self._codes[rows][:, None]).squeeze(1)
            every += torch.bincount(sizes, minlength=len(every))
            inside += torch.bincount(sizes[true], minlength=len(inside))
        return every, inside

    def _chosen(self, wanted: Callable[[slice], Tensor]) -> Tensor:
        """Numbers of the rows for which a function of runs of rows is true, int64, ascending."""
        rows = chosen(len(self.drawn), np.int64, lambda part: part.start + np.flatnonzero(wanted(part).numpy()))
        return torch.from_numpy(rows)

    def state_dict(self) -> dict[str, Any]:
        """State for a resume."""
        return {
            "stages": self._of.stages,
            "prior": self._prior,
            "drawn": self.drawn,
            "likely": self._likely.view(torch.uint8),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: It is of another number of stages.
        """
        if state["stages"] != self._of.stages:
            raise ValueError(f"labels drawn in {state['stages']} stages")
        self._prior, self.drawn = copied(state["prior"]), copied(state["drawn"])
        self._likely = copied(state["likely"]).view(torch.bool)
        for rows in _pieces(self._chosen(lambda part: self.drawn[part] != UNDRAWN)):
            self._state_likelihood(rows)

    def _draw(self, stage: int, rows: Tensor) -> None:
        of = self._of
        if stage:
            prior = self._prior
            pieces = computed(
                len(rows), np.bool_, lambda part: likely_classes(prior[rows[part]], of.eps).numpy(), (of.classes,)
            )
            likely = torch.from_numpy(pieces)
            if self._remembered is not None:
                likely = self._remembered(stage, rows_of(self._digests, rows), likely)
            self._likely[rows] = likely
        for own in _pieces(rows):
            codes, digests, key = self._codes[own], self._digests[own], (of.eps, self._secret, of.column, self._draws)
            if stage:
                drawn = randomized_response_with_prior(codes, digests, self._likely[own], *key)
            else:
                drawn = randomized_response(codes, digests, of.classes, *key)
            self.drawn[own] = drawn
            self._state_likelihood(own)

    def _state_likelihood(self, rows: Tensor) -> None:
        """Set the likelihood of drawn rows."""
        drawn, likely = self.drawn[rows], self._likely[rows]
        if self._correction == "forward":
            self.likelihood[rows] = prior_likelihood(drawn, likely, self._of.eps)
        else:
            self.likelihood[rows] = torch.nn.functional.one_hot(drawn, self._of.classes).double()


def _pieces(rows: Tensor) -> Iterator[Tensor]:
    return (rows[start:end] for start, end in chunks_of(len(rows)))
