"""A party's grades: computed once, checked before they leave, and the same in a run that begins again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from cutlayer.config import Job
from cutlayer.data.batches import evaluation_batches
from cutlayer.data.carried import Carried, Lowered
from cutlayer.data.row_values import ValueWords
from cutlayer.data.store import Store
from cutlayer.errors import BudgetExceeded, ConfigError
from cutlayer.kernels.noise.aes import derive
from cutlayer.kernels.noise.score_bands import MIN_EPSILON, bands_for
from cutlayer.models.bottom_fits import CONDITIONS, canonical_fit, grade_limits_of, lower_epsilons_of
from cutlayer.models.grade import GradeBottom
from cutlayer.parties.carried import grade_information
from cutlayer.parties.carried_limits import ExceededLimit, check_names, first_exceeded
from cutlayer.parties.carried_together import GradedRows, with_earlier_releases
from cutlayer.parties.grade_memory import GradeMemory, JoinKeys
from cutlayer.parties.session.checkpoint import CARRIED_FILE, DRAWN_LABELS_FILE
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.protections.grade_dp import GradeDP, drawing_of, name_of
from cutlayer.storage.durable import write_whole
from cutlayer.storage.row_arrays import chunks_of, gathered_rows
from cutlayer.storage.row_tensors import empty_rows, rows_of
from cutlayer.workers import map_in_threads

if TYPE_CHECKING:
    from cutlayer.models.bottom_fits.base import DrawnLabels
    from cutlayer.parties.phases.passive_side import PassiveSide


class Grading:
    """Computes and checks a party's grades, from the drawn labels that it was sent or from its own columns alone.

    Its fit and the draws of its grades follow from its secret, the job, its settings, the labels and its rows. So a run
    that did not end and is begun again, in its folder or another one, makes the same release: one draw of each row.

    Args:
        side: The party.
        labels: The drawn labels; `None` where none were sent.
        bottom: Its bottom model.

    Raises:
        ConfigError: A limit of `fit.limits` is of no column.
    """

    def __init__(self, side: PassiveSide, labels: DrawnLabels | None, bottom: GradeBottom) -> None:
        self._side, self._labels, self._bottom = side, labels, bottom
        self._drawing = drawing_of(side.local.chain.protections)
        drawn = b"" if labels is None else labels.values.to(torch.uint8).numpy().tobytes()
        about = b"" if labels is None else f"{labels.epsilon.hex()} {labels.classes}".encode()
        fit = side.job.parties[side.local.name].fit
        settings = canonical_fit(fit)
        # Conditions decide whether a row's draw is sent, and which of the draws at several epsilons, never what it is:
        # were they in its key, a party that states another limit would draw the same grade anew, and the mean of many
        # draws is the grade. Under one key the reader of the same epsilon gets what it has.
        conditions = {key: settings.pop(key) for key in CONDITIONS if key in settings}
        self._conditions = json.dumps(conditions, sort_keys=True).encode() if conditions else b""
        parts = side.job.digest().encode(), json.dumps(settings, sort_keys=True).encode(), about, drawn
        self.key = derive(side.local.secret, b"grade fit", *parts)
        if side.setup.named is not None:
            check_names(side.setup.named[1], grade_limits_of(fit, "fit"), side.local.name)
        # Until there are models, for the account of a refusal: one by each condition, as each says something else.
        self._draw_by(derive(self.key, b"conditions", self._conditions) if conditions else self.key)

    @property
    def epsilon(self) -> float | None:
        """Privacy of the draw of a row's grade; `None` without one."""
        return None if self._drawing is None else self._drawing.settings.epsilon

    @property
    def name(self) -> str:
        """Name of the draws."""
        return name_of(self._drawn_by)

    def _draw_by(self, key: bytes) -> None:
        if self._drawing is not None:
            self._drawing.draw_by(key)

    @cached_property
    def _rows_digest(self) -> bytes:
        return rows_digest(self._side.setup.store)

    @property
    def _drawn_by(self) -> bytes:
        """Key of the draws of these models and rows: grades of any other ones are drawn by another, independently.

        Were a row drawn under one key for two grades, different draws would show that it had not the same in both.
        """
        epsilon = b"" if self.epsilon is None else self.epsilon.hex().encode()  # models may be the same at several
        return self._key_of(b"grade draws", module_digest(self._bottom), epsilon)

    @property
    def _fitted_by(self) -> str:
        """Name of the fit to these labels and rows under these conditions, whatever epsilon its grades are drawn at."""
        return name_of(self._key_of(b"graded fit", *([self._conditions] if self._conditions else [])))

    def _key_of(self, purpose: bytes, *parts: bytes) -> bytes:
        rows = self._rows_digest, bytes.fromhex(self._side.state.rows)
        return derive(self._side.local.secret, purpose, self.key, *rows, *parts)

    @property
    def _released_rows(self) -> Tensor:
        """Numbers of the rows that are released: all, but in a pilot."""
        return torch.arange(self._side.setup.store.rows) if self._side.pilot is None else self._side.pilot

    def charge_draws(self, grades: Tensor) -> None:
        """Count the draws of all rows in large pieces, so that not each of their batches waits for the disk.

        Args:
            grades: Grade of each row before it is drawn, int64 (n,).
        """
        side, drawing = self._side, self._drawing
        if drawing is None or drawing.draws is None:
            return
        every = self._released_rows
        for start, end in chunks_of(len(every)):
            rows = every[start:end]
            side.local.chain.charge_draws(drawing.draws, drawing.pairs(side.setup.ids(rows), rows_of(grades, rows)))

    def grades(self) -> Tensor:
        """Grade of each row before it is drawn, int64 (n,)."""
        setup, bottom = self._side.setup, self._bottom
        known, bottom.known = bottom.known, None
        return grades_of_rows(bottom, setup.store, setup.ids, known)

    def checked_grades(self) -> Tensor:
        """Grade all rows, at the first epsilon at which the grades are within the limits of this party.

        What they carry of each column is computed before any is drawn. The grades that it released of the same rows in
        other jobs count with them. These are noted for the next one, and drawn by a key of their own from then on.

        Returns:
            Grade of each row before it is drawn, int64 (n,).

        Raises:
            ConfigError: They carry more of a column than `fit.limits` allows, at each epsilon that may be tried.
        """
        side, setup = self._side, self._side.setup
        # For the audit, which asks of each row what the models that were fitted without it say.
        if self._labels is not None:
            folds = self._bottom.folds(setup.ids(setup.split.part("train")), len(self._bottom.heads)).to(torch.uint8)
            side.checkpoints.write_state(DRAWN_LABELS_FILE, self._labels.state(folds))
        memory = side.local.grades
        with memory.locked() if memory is not None else nullcontext():
            tried = self._candidate_epsilons(memory)
            if len(tried) > 1 and side.local.all_runs is not None:
                # A budget that paid for low steps alone would tell by a refusal, which it does not count, which it is.
                self._set_epsilon(tried[0])
                side.local.all_runs.check()
            refused: list[tuple[Carried, ExceededLimit]] = []
            for epsilon in tried:
                self._set_epsilon(epsilon)
                grades = self.grades()
                own = GradedRows(grades.numpy(), bands_for(self.epsilon, self._bottom.most), self.epsilon)
                sent = own._replace(grades=own.grades[self._released_rows.numpy()])
                if not self._is_known(sent, memory):
                    found = self._information(own, memory, [over for _, over in refused])
                    if found is not None and (over := first_exceeded(found, grade_limits(side.job, side.local.name))):
                        refused.append((found, over))
                        continue
                    self._write_found(found)
                self._prepare_release(sent, memory)
                return grades
            self._set_epsilon(tried[0])
            raise self._refusal(*refused[0], refused[-1][1], tried)

    def _candidate_epsilons(self, memory: GradeMemory | None) -> list[float | None]:
        """Epsilons to try, descending; one alone where a row may have been released at it, which no other may be at."""
        side, stated = self._side, self.epsilon
        if self._bottom.redivide is None:  # of a run that goes on
            return [stated]
        every = [stated, *lower_epsilons_of(side.job.parties[side.local.name].fit, stated)]
        known = set() if memory is None or len(every) == 1 else memory.epsilons(self._fitted_by)
        return next(([epsilon] for epsilon in every if epsilon in known), every)

    def _set_epsilon(self, epsilon: float | None) -> None:
        """Divide the scores for draws at an epsilon, unless they are."""
        if self._drawing is None or epsilon is None or epsilon == self.epsilon:
            return
        self._drawing.lower(epsilon)
        if self._bottom.redivide is not None:
            self._bottom.redivide(epsilon)
            self._bottom.to(self._side.local.device)

    def _is_known(self, sent: GradedRows, memory: GradeMemory | None) -> bool:
        """Whether grades were released before under these conditions, and what they carry is noted in this run."""
        ids, place = self._side.setup.ids(self._released_rows).numpy(), self._side.checkpoints.folder / CARRIED_FILE
        return place.exists() and memory is not None and memory.has_same(self.name, ids, sent, self._fitted_by)

    def _prepare_release(self, sent: GradedRows, memory: GradeMemory | None) -> None:
        """Note grades that are about to be sent, count the run, and draw them by a key of their own from here on."""
        side, job = self._side, self._side.job.digest()
        self._bottom.redivide = None  # which holds the scores of all training rows
        self._draw_by(self._drawn_by)
        if memory is None:
            return
        is_new = not memory.has(self.name)
        # Before the run is counted, which is once: begun again, it has the epsilon that it was counted with.
        memory.record(self.name, job, self._rows(self._released_rows), sent, self._fitted_by)
        try:
            side.state.charge()
        except BudgetExceeded:
            if is_new:  # what a budget refuses is never sent
                memory.drop(self.name)
            raise

    def _rows(self, rows: Tensor) -> JoinKeys:
        """Some rows, by which releases of several jobs are joined."""
        setup = self._side.setup
        columns, chosen, words = () if setup.encoder is None else setup.encoder.value_columns, rows.numpy(), setup.words

        def values(names: Sequence[str]) -> ValueWords | None:
            if words is not None and {*names} == {*columns}:
                return gathered_rows(words, chosen)
            return self._side.local.table.value_reader(gathered_rows(setup.digests, chosen))(names)

        return JoinKeys(setup.ids(rows).numpy(), columns, values)

    def _information(
        self, own: GradedRows, memory: GradeMemory | None, exceeding: Sequence[ExceededLimit]
    ) -> Carried | None:
        """What grades carry; `None` where no column has a name.

        Args:
            own: The grades.
            memory: Those of other releases.
            exceeding: The limits that grades exceed at the higher epsilons that were tried.
        """
        side, setup = self._side, self._side.setup
        if setup.encoder is None or setup.named is None:
            return None
        store, encoder = setup.named
        of: Literal["labels", "columns"] = "columns" if self._labels is None else "labels"
        found = grade_information(store, encoder, own.grades, self.epsilon, own.bands, of)
        if memory is not None and side.local.all_runs is not None:
            former, names = memory.other_releases(self.name, self._rows(torch.arange(store.rows)), own.grades)
            unknown = side.local.all_runs.count_other_grades(names)
            found = with_earlier_releases(found, store, encoder, own, former, unknown)
        others = encoder.names[len(setup.encoder.names) :]
        numbers = tuple(each.name for each in encoder.numbers if each.name in others and each.seen is not None)
        kinds = {"no_features": others, "numbers": numbers}
        return found.model_copy(update={"lowered": self._lowered(exceeding), **kinds})

    def _lowered(self, exceeding: Sequence[ExceededLimit]) -> Lowered | None:
        """Why epsilon is lower than that of the settings; of a run that goes on, as it was found before."""
        if self._drawing is None or not self._drawing.is_lowered:
            return None
        if not exceeding:
            return recorded_reason(self._drawing, self._side.checkpoints.folder)
        first, by_default = exceeding[0], any(each.by_default for each in exceeding)
        said = {"attribute": first.attribute.attribute, "share": first.share, "limit": first.limit}
        return Lowered(epsilon=self._drawing.stated, by_default=by_default, **said)

    def _write_found(self, found: Carried | None) -> None:
        if found is not None:
            write_whole(self._side.checkpoints.folder / CARRIED_FILE, found.model_dump_json(indent=1))

    def _refusal(
        self, found: Carried, over: ExceededLimit, last: ExceededLimit, tried: Sequence[float | None]
    ) -> ConfigError:
        """The error of grades that exceed limits at all epsilons, `last` at the lowest; the record is of the first."""
        self._write_found(found)
        lower = ", ".join(f"{epsilon:g}" for epsilon in tried[1:] if epsilon is not None)
        state = "state fit.least_epsilon or " if self.epsilon is not None and self.epsilon > MIN_EPSILON else ""
        remedy = f"{state}lower grade_dp.epsilon or grades"
        if lower:
            then = f"then {last.share:.2f} of {last.attribute.attribute}, {last.limit:g} at most{last.joined_with}"
            remedy = f"nor are they within all limits at {lower} ({then})"
        remedy += ", leave columns that tell it out of features, or raise fit.limits"
        return over.refusal(self._side.local.name, remedy)

    def record_refusal(self) -> None:
        """Count a refusal as a run, and note that no grades of it were sent."""
        side, memory = self._side, self._side.local.grades
        side.setup.charge_refusal()
        if memory is not None and self._drawing is not None and self._drawing.draws is not None:
            with memory.locked():
                none = GradedRows(np.zeros(0, np.int64), 0, self.epsilon)
                memory.record(self._drawing.draws, side.job.digest(), JoinKeys(np.zeros((0, 16), np.uint8)), none)


def grading_of(side: PassiveSide) -> Grading | None:
    """The grading of a party that releases grades, else `None`."""
    bottom = side.setup.bottom
    return Grading(side, side.drawn_labels, bottom) if isinstance(bottom, GradeBottom) else None


def recorded_reason(drawing: GradeDP, folder: Path) -> Lowered:
    """Why a party whose part of a run is in a folder lowered epsilon; without a reason where another folder has it."""
    noted = recorded_shares(folder)
    lowered = None if noted is None else noted.lowered
    return lowered or Lowered(epsilon=drawing.stated)


def recorded_shares(folder: Path) -> Carried | None:
    """What the grades of a party carried whose part of a run is in a folder; `None` where another folder has it."""
    place = folder / CARRIED_FILE
    return Carried.model_validate_json(place.read_bytes()) if place.exists() else None


def grade_limits(job: Job, party: str) -> Mapping[str, float]:
    """Limits of what a party's grades carry, for `first_exceeded`."""
    limits = grade_limits_of(job.parties[party].fit, "fit")
    # Cells follow from the columns alone: nobody's labels can have made them of one attribute.
    return {"other": 1.0, **limits} if job.bottom_of(party).get("of") == "columns" else limits


def grades_of_rows(
    bottom: GradeBottom,
    store: Store,
    ids: Callable[[Tensor], Tensor],
    known: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Grade of each row of a store before it is drawn, int64 (n,).

    Args:
        bottom: Models that grade.
        store: Encoded rows.
        ids: Digests of the ids of rows, int64 (m,) -> uint8 (m, 16).
        known: Rows that have been graded, and their grades, int64 (k,) each.
    """
    grades = empty_rows(store.rows, torch.empty(0, dtype=torch.int64))
    left = torch.ones(store.rows, dtype=torch.bool)
    if known is not None:
        grades[known[0]], left[known[0]] = known[1], False

    def grade(rows: Tensor) -> None:
        with torch.no_grad():  # which is a setting of this thread
            grades[rows] = bottom.grade(*store.gather(rows), ids(rows))

    map_in_threads(grade, evaluation_batches(left.nonzero()[:, 0], EVALUATION_ROWS))
    return grades


def rows_digest(store: Store) -> bytes:
    """Digest of the encoded columns of all rows, in their order."""
    hasher = hashlib.blake2b(digest_size=32)
    for start, end in chunks_of(store.rows):
        for part in store.gather(torch.arange(start, end)):
            hasher.update(part.numpy().tobytes())
    return hasher.digest()


def module_digest(module: nn.Module) -> bytes:
    """Digest of a module's tensors, by their names."""
    hasher = hashlib.blake2b(digest_size=32)
    for name, tensor in sorted(module.state_dict().items()):
        content = tensor.cpu().contiguous().numpy()
        hasher.update(f"{name} {content.dtype} {content.shape} ".encode() + content.tobytes())
    return hasher.digest()
