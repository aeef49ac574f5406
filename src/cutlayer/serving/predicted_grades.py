"""Grades of rows that a prediction releases: noted with those of trainings, and within the limits of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from cutlayer.accounting.run_store import RUN_MARKER_FILE
from cutlayer.config import Job
from cutlayer.data.carried import Carried
from cutlayer.data.encoding import Encoder
from cutlayer.data.party_data import PartyTable
from cutlayer.data.prepared import beside
from cutlayer.data.store import Store
from cutlayer.errors import CheckpointError, DataError
from cutlayer.kernels.noise.score_bands import bands_for
from cutlayer.models.bottom_fits.grade import MIN_ROWS_PER_GRADE
from cutlayer.models.grade import GradeBottom
from cutlayer.parties.carried import grade_information, without_chance
from cutlayer.parties.carried_limits import check_limits, check_names
from cutlayer.parties.carried_together import GradedRows, with_earlier_releases
from cutlayer.parties.grade_memory import GradeMemory, JoinKeys
from cutlayer.parties.grading import grade_limits, grades_of_rows, recorded_reason, recorded_shares
from cutlayer.parties.session.checkpoint import RELEASED_FILE, Checkpoints, State
from cutlayer.protections.grade_dp import GradeDP, drawing_of
from cutlayer.serving.models import RowEmbedder
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import grade_memory, secret_of_run
from cutlayer.training.run_ledger import chain_of
from cutlayer.training.trained import RESTORE_REMEDY

_BY_FILE_REMEDY = "its private file limits it by now, which one process does not read: use `cutlayer party predict`"


def note_grades(
    job: Job,
    folder: RunFolder,
    party: str,
    encoder: Encoder | None,
    embed: RowEmbedder,
    table: PartyTable | None = None,
    *,
    of_run: bool = False,
) -> None:
    """Note grades that are about to be released for predictions, once those of the whole table are within limits.

    Rows that had grades of other releases are one release with them, as in a training, and so are rows that had others
    in this one, before their columns changed. The limits are of the whole table, whichever rows are asked for: of a few
    at a time nothing could be computed, and a label owner that chooses them would read an answer from each refusal.
    They hold here, too, if no other release had these rows: a label owner that chose those of the training may have
    chosen some of which grades carry less. Where anybody can repeat the noise no grades are noted, and limits are of
    these alone.

    Args:
        job: Job of the run.
        folder: Run folder of the party.
        party: Name of a passive party.
        encoder: Encoder of its columns.
        embed: Its bottom model, and the rows that are released, with their ids; given their grades, which it then has
            not to compute again.
        table: Its table, opened with this encoder; `None` where these are all of its rows.
        of_run: Whether the limits of the job are those of the training, and not of the party's private file. Then those
            hold, too, which this had when it was last read for a prediction.

    Raises:
        ConfigError: They carry more of a column than the party allows; nothing is to be sent.
        CheckpointError: The party's secret, next to which the grades of other releases are, is not there.
    """
    bottom = embed.bottom
    if not isinstance(bottom, GradeBottom) or embed.digests is None:
        return
    kept = Checkpoints.of_run(job, folder.path, party).read_state(RELEASED_FILE)
    name, memory = _memory(folder, party, kept)
    drawing, own = _drawn_grades(job, party, bottom, embed, kept)
    rows = JoinKeys(embed.digests, () if encoder is None else encoder.value_columns, embed.values)
    with nullcontext() if memory is None else memory.locked():
        limits = _stated_limits(grade_limits(job, party), name, memory, of_run=of_run)
        # What was released before says nothing new, and rows of the training were within limits there.
        is_same = memory.has_same(name, rows.digests, own) if memory is not None else of_run and table is None
        if encoder is not None and not is_same:
            whole, every, grades = _whole_table(bottom, (embed, rows, own), table)
            former = [] if memory is None else memory.other_releases(name, every, grades.grades)[0]
            if former or len(every.digests) >= MIN_ROWS_PER_GRADE * own.bands:
                store, named = beside(whole.store, encoder, whole.limited)
                check_names(named, limits[0], party)
                for each in limits[1:]:  # whose columns only the private file names
                    check_names(named, each, party, _BY_FILE_REMEDY)
                place = folder.path / "checkpoint" / party
                _check_numbers(named, place)
                found = _with_reason(_carried(store, named, grades, former), drawing, place)
                for each in limits:
                    check_limits(found, each, party)
        if memory is not None:  # the same again, too: that it was by now tells when it will have changed
            memory.record(name, job.digest(), rows, own)


def _memory(folder: RunFolder, party: str, kept: State | None) -> tuple[str, GradeMemory | None]:
    """Name of the draws of a run, and the memory of a party's grades; `None` where none are noted.

    Raises:
        CheckpointError: The secret is not there, next to which they are, or the run has no state of its release.
    """
    # Without the marker, what is released stays in this process, or anybody can repeat the noise.
    if not (folder.path / "checkpoint" / party / RUN_MARKER_FILE).exists():
        return "", None
    secret = secret_of_run(folder.path, party)
    if kept is None or "draws" not in kept[1] or secret is None:
        got = "whose secret is not where it was" if secret is None else "without its release, or of an earlier version"
        wanted = f"{party}'s part of a run, to know its other grades"
        raise CheckpointError.expected(wanted, f"one {got}", RESTORE_REMEDY)
    return str(kept[1]["draws"]), grade_memory(secret)


def _drawn_grades(
    job: Job, party: str, bottom: GradeBottom, embed: RowEmbedder, kept: State | None
) -> tuple[GradeDP | None, GradedRows]:
    """The draw of a party's grades, at the epsilon of the training, and the grades of the rows that are released."""
    embed.grades = grades_of_rows(bottom, embed.store, embed.ids)
    drawing = drawing_of(chain_of(job, party).protections)
    if drawing is not None and kept is not None:  # which may have been lowered
        drawing.load_state_dict(kept[1]["chain"]["protections"][GradeDP.name]["state"])
    epsilon = None if drawing is None else drawing.settings.epsilon
    return drawing, GradedRows(embed.grades.numpy(), bands_for(epsilon, bottom.most), epsilon)


def _stated_limits(
    limits: Mapping[str, float], name: str, memory: GradeMemory | None, *, of_run: bool
) -> list[Mapping[str, float]]:
    """The limits that hold: those of a party's private file, which are noted, or those of a run and the noted ones."""
    if memory is None:
        return [limits]
    if of_run:
        return [limits, *memory.limits(name)]
    memory.note_limits(name, limits)
    return [limits]


def _whole_table(
    bottom: GradeBottom, asked: tuple[RowEmbedder, JoinKeys, GradedRows], table: PartyTable | None
) -> tuple[RowEmbedder, JoinKeys, GradedRows]:
    """All rows of a party's table, by which they are joined with other releases, and their grades."""
    if table is None:
        return asked
    _, rows, own = asked
    every = JoinKeys(table.grade_digests(table.digests), rows.columns, table.value_reader(table.digests))
    whole = RowEmbedder(bottom, table.encode_all(), every.digests)
    whole.limited = table.limited_columns()
    return whole, every, own._replace(grades=grades_of_rows(bottom, whole.store, whole.ids).numpy())


def _carried(store: Store, named: Encoder, grades: GradedRows, former: Sequence[GradedRows]) -> Carried:
    """What the grades of all rows of a table carry, alone and with earlier ones; of few rows chance carries much."""
    found = Carried(grades=grades.bands, epsilon=grades.epsilon, bits=0.0, attributes=())
    if store.rows >= MIN_ROWS_PER_GRADE * grades.bands:
        found = grade_information(store, named, grades.grades, grades.epsilon, grades.bands)
        found = without_chance(found, store.rows)
    return with_earlier_releases(found, store, named, grades, former)


def _with_reason(found: Carried, drawing: GradeDP | None, place: Path) -> Carried:
    """The same, with why epsilon was lowered: for a reason that is not known, the stricter one is taken."""
    if drawing is None or not drawing.is_lowered:
        return found
    why = recorded_reason(drawing, place)
    return found.model_copy(
        update={"lowered": why.model_copy(update={"by_default": why.by_default or not why.attribute})}
    )


def _check_numbers(named: Encoder, folder: Path) -> None:
    """Refuse text in a column with a limit that had numbers in the training: one word makes text of a column.

    Nothing would be computed of thresholds, and where all values differ nothing at all.

    Raises:
        DataError: There is some.
    """
    noted, numbers = recorded_shares(folder), {each.name for each in named.numbers}
    for name in () if noted is None else noted.numbers:
        if name in {*named.names} - numbers:
            remedy = "its limit is of numbers: fix the column, or leave values out that are none"
            raise DataError.expected(f"numbers in column {name!r}, as in the training", "text", remedy)
