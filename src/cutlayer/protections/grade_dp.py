"""Differentially private grades: each row's grade goes through randomised response, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from cutlayer.accounting import Event, Pairs, RandomizedGrade, ReleasePlan, row_pairs
from cutlayer.accounting.row_draws import MAX_ROW_VALUES
from cutlayer.config import FrozenModel, Job
from cutlayer.config.phases import grades_rows
from cutlayer.errors import CheckpointError
from cutlayer.kernels.noise.aes import derive, encrypt_blocks
from cutlayer.kernels.noise.randomized_response import flip_probability, randomized_response
from cutlayer.kernels.noise.score_bands import MIN_EPSILON, bands_for, lower_epsilons
from cutlayer.kernels.rows.grade_columns import columns_of_grades, grades_of_columns
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import FeatureProtection
from cutlayer.protections.contract.views import PassiveView


class GradeDPConfig(FrozenModel):
    """Privacy of a row's columns.

    Attributes:
        epsilon: Cost of a row's grade, above 0. From 8 on the number of grades hides a row, and noise changes few of
            them. At 2 no test between two values of a row has an AUC above .881.
    """

    epsilon: float = Field(gt=0, le=50, strict=True, description="8 and 4 are a start")


class GradeDP(FeatureProtection[GradeDPConfig]):
    """Draw each row's grade by randomised response before it leaves.

    Of k grades a row's own is kept with probability e^epsilon / (k - 1 + e^epsilon), else another is drawn uniformly.
    The draw is a function of a key, the row's id and its grade: a resume and a later prediction of the same row repeat
    it. The key follows from the party's secret, the drawn labels, the models and all rows: a run that did not end and
    is begun again repeats the draws too, and any other run draws independently. The number of grades follows epsilon,
    so that the fit of the bottom model knows it: 16, 8, 4, 3 and 2 from 8, 6, 4, 3 and below. Where the limits of the
    party would be exceeded, all rows are drawn at a lower one of these epsilons (`fit.least_epsilon`).

    Reference: Kairouz, Bonawitz and Ramage 2016, Discrete distribution estimation under local privacy
    (arXiv 1602.07387), section 2, for randomised response of k values.

    Guarantee: epsilon-differential privacy of a row's columns for its grade, delta 0. Neighbours differ in one row's
    columns, replaced. It is conditional on the bottom model and the encoding, which are fitted on the rows. With
    `fit.epsilon` the model is private too, and both costs add up. An id whose
    columns change so that its grade does is drawn anew. The change shows, and epsilon adds up over its different
    grades, which the ledger counts. Rows without ids are drawn once for each table: a prediction is one more draw.

    Advice: with `fit: {kind: grade}`, nearly all of what a partner adds at an epsilon of 8 (docs/how-to/grades.md).
    """

    name = "grade_dp"
    config = GradeDPConfig
    reference = "Kairouz et al. 2016 (arXiv 1602.07387), section 2"
    start = GradeDPConfig(epsilon=8.0)
    rank = 20
    excludes = frozenset({"dp_embedding", "dp_bottom"})
    on_cpu = True
    hides_changes = True
    counters = ("rows",)

    def __init__(self, settings: GradeDPConfig) -> None:
        super().__init__(settings)
        self._key, self.stated = b"", settings.epsilon

    def draw_by(self, key: bytes) -> None:
        """Draw by a key, 32 bytes, in place of one of the run."""
        self._key = key

    def lower(self, epsilon: float) -> None:
        """Draw at an epsilon, before any row is drawn: that of the settings, `stated`, or one of `lower_epsilons`.

        Raises:
            CheckpointError: It is none of these: the state that it is of is of other settings.
        """
        if epsilon not in (self.stated, *lower_epsilons(self.stated, MIN_EPSILON)):
            wanted = f"{self.name} at its epsilon of {self.stated:g}, or at a step below it"
            raise CheckpointError.expected(wanted, f"{epsilon:g}", "restore its settings, or start a new run")
        self.settings = self.settings.model_copy(update={"epsilon": epsilon})

    @property
    def is_lowered(self) -> bool:
        """Whether it draws at a lower epsilon than its settings state."""
        return self.settings.epsilon < self.stated

    @property
    def draws(self) -> str | None:
        """Name of the draws; `None` where the run's own key draws."""
        return name_of(self._key) if self._key else None

    def state_dict(self) -> dict[str, Any]:
        """The key, and the epsilon: later predictions repeat the draws, whatever the settings are by then."""
        key = {"key": self._key.hex()} if self._key else {}
        return {**key, "epsilon": self.settings.epsilon}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Draw by the key and the epsilon of a state, if it has them."""
        self._key = bytes.fromhex(state.get("key", ""))
        self.lower(float(state.get("epsilon", self.stated)))

    def row_draws(self, e: Tensor, view: PassiveView) -> tuple[str, Pairs] | None:
        """Rows with their grades. Of rows without ids, a prediction's first batch stands for all of them."""
        if self.draws is None or view.ids is None or (view.numbered and view.step):
            return None
        return self.draws, self.pairs(view.ids(view.rows), self._grades(e)[0])

    def pairs(self, digests: Tensor, grades: Tensor) -> Pairs:
        """Rows and grades as they are counted, for `row_draws`.

        Args:
            digests: Digests of the ids, uint8 (n, 16).
            grades: Grades before they are drawn, int64 (n,).
        """
        ids = digests.numpy()
        # Hidden by the key: where the run is deleted, the count that stays says nothing of a grade.
        hiding = (encrypt_blocks(derive(self._key, b"count"), ids)[:, 0] % MAX_ROW_VALUES).astype(np.int64)
        return row_pairs(ids, grades.numpy() ^ hiding)

    def _grades(self, e: Tensor) -> tuple[Tensor, int]:
        """Grades of e (n, width), int64 (n,), and their number.

        Of an embedding that is no grade there are as many, so that the guarantee holds of any.
        """
        bands = max(2, bands_for(self.settings.epsilon, e.shape[1]))
        return grades_of_columns(e).clamp_max(bands - 1), bands

    def embedding_out(self, e: Tensor, view: PassiveView) -> Tensor:
        """Draw the grades of e (n, width), which are columns of 0 and 1, and return them as such columns."""
        grades, bands = self._grades(e)
        # Rows that nobody names, of a release that is only simulated, are known by their number in the request.
        known = view.ids is not None
        digests = view.ids(view.rows) if view.ids is not None else _numbered(view.rows)
        draws = "" if known else f"{view.mode} {view.epoch} {view.step}"
        purpose = torch.zeros(1)
        key = self._key or self.context.noise.key(hook=self.name, peer=self.context.peers[0], step=0, content=purpose)
        drawn = randomized_response(grades, digests, bands, self.settings.epsilon, key, self.name, draws)
        self.count(rows=len(e))
        columns = columns_of_grades(drawn, e.shape[1])
        # No gradient comes back to a grade; a graph is kept where there is one, so that a step can be taken.
        return columns + (e - e.detach()).nan_to_num(0.0) if e.requires_grad else columns

    def faults(self, job: Job, party: str) -> Iterator[str]:
        """Grades are drawn of a party that releases grades alone."""
        if party in job.passives and not grades_rows(job, party):
            yield (
                f"expected model.bottom of {party}: {{kind: grade}} with {self.name}, got "
                f"{job.bottom_of(party).get('kind')}; write it, or take dp_embedding"
            )

    def event(self, plan: ReleasePlan) -> Event:
        """One draw of each row's grade for the whole run."""
        return RandomizedGrade(self.settings.epsilon, condition=plan.condition, fit=plan.fit)

    def notes(self, epochs: int) -> Sequence[str]:
        """What of the noise protects."""
        if self.settings.epsilon < 6:
            return ()
        return (
            f"at epsilon {self.settings.epsilon:g} few grades are changed: a row's columns are hidden by the small "
            "number of grades, not by the noise; two given values of a row in different grades can be distinguished",
        )

    def metrics(self) -> dict[str, Any]:
        """Rows drawn, and the share of grades that is to be expected to change; how many did is not released.

        Where epsilon was lowered, the label owner learns it, and the number of grades.
        """
        bands = bands_for(self.settings.epsilon, max(2, self.context.widths[self.context.party]))
        lowered = {"epsilon": self.settings.epsilon, "grades": bands} if self.is_lowered else {}
        return {**self.counts, "expected_share_changed": flip_probability(self.settings.epsilon, bands), **lowered}


def drawing_of(protections: Sequence[object]) -> GradeDP | None:
    """The protection that draws a party's grades, if it has one."""
    return next((each for each in protections if isinstance(each, GradeDP)), None)


def epsilon_of(protections: Sequence[object]) -> float | None:
    """Privacy of the draw of a row's grade; `None` where none is drawn."""
    drawing = drawing_of(protections)
    return None if drawing is None else drawing.settings.epsilon


def name_of(key: bytes) -> str:
    """Name of the draws by a key, which says nothing of it."""
    return derive(key, b"name", size=16).hex()


def _numbered(rows: Tensor) -> Tensor:
    """Row numbers as digests, uint8 (n, 16)."""
    wide = torch.stack([rows.long(), torch.zeros_like(rows).long()], dim=1).contiguous()
    return wide.view(torch.uint8)
