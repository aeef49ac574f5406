"""Grades of rows that a prediction releases: noted with those of trainings, and within the limits of all of them."""

from __future__ import annotations

from pathlib import Path

from cutlayer.accounting.run_store import RUN_MARKER_FILE
from cutlayer.config import Job
from cutlayer.data.carried import Carried
from cutlayer.data.encoding import Encoder
from cutlayer.data.party_data import PartyTable
from cutlayer.data.prepared import beside
from cutlayer.errors import CheckpointError, DataError
from cutlayer.kernels.noise.score_bands import bands_for
from cutlayer.models.bottom_fits.grade import MIN_ROWS_PER_GRADE
from cutlayer.models.grade import GradeBottom
from cutlayer.parties.carried import grade_information, without_chance
from cutlayer.parties.carried_limits import check_limits, check_names
from cutlayer.parties.carried_together import GradedRows, with_earlier_releases
from cutlayer.parties.grade_memory import JoinKeys
from cutlayer.parties.grading import grade_limits, grades_of_rows, recorded_reason, recorded_shares
from cutlayer.parties.session.checkpoint import RELEASED_FILE, Checkpoints
from cutlayer.protections.grade_dp import GradeDP, drawing_of
from cutlayer.serving.models import RowEmbedder
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import grade_memory, secret_of_run
from cutlayer.training.run_ledger import chain_of
from cutlayer.training.trained import RESTORE_REMEDY


def note_grades(
    job: Job,
    folder: RunFolder,
    party: str,
    encoder: Encoder | None,
    embed: RowEmbedder,
    table: PartyTable | None = None,
) -> None:
    """Note grades that are about to be released for predictions, once those of the whole table are within limits.

    Rows that had grades of other releases are one release with them, as in a training. The limits are of the whole
    table, whichever rows are asked for: of a few at a time nothing could be computed, and a label owner that chooses
    them would read an answer from each refusal. They hold here, too, if no other release had these rows: a label owner
    that chose those of the training may have chosen some of which grades carry less.

    Args:
        job: Job of the run.
        folder: Run folder of the party.
        party: Name of a passive party.
        encoder: Encoder of its columns.
        embed: Its bottom model, and the rows that are released, with their ids; given their grades, which it then has
            not to compute again.
        table: Its table, opened with this encoder; `None` where these are all of its rows.

    Raises:
        ConfigError: They carry more of a column than the party allows; nothing is to be sent.
        CheckpointError: The party's secret, next to which the grades of other releases are, is not there.
    """
    bottom, place = embed.bottom, folder.path / "checkpoint" / party
    if not isinstance(bottom, GradeBottom) or embed.digests is None:
        return
    # Without the marker, what is released stays in this process, or anybody can repeat the noise.
    if not (place / RUN_MARKER_FILE).exists():
        return
    kept = Checkpoints.of_run(job, folder.path, party).read_state(RELEASED_FILE)
    secret = secret_of_run(folder.path, party)
    if kept is None or "draws" not in kept[1] or secret is None:
        got = "whose secret is not where it was" if secret is None else "without its release, or of an earlier version"
        wanted = f"{party}'s part of a run, to know its other grades"
        raise CheckpointError.expected(wanted, f"one {got}", RESTORE_REMEDY)
    name, memory = str(kept[1]["draws"]), grade_memory(secret)
    embed.grades = grades_of_rows(bottom, embed.store, embed.ids)
    drawing = drawing_of(chain_of(job, party).protections)
    if drawing is not None:  # at the epsilon of the training, which may have been lowered
        drawing.load_state_dict(kept[1]["chain"]["protections"][GradeDP.name]["state"])
    epsilon = None if drawing is None else drawing.settings.epsilon
    own = GradedRows(embed.grades.numpy(), bands_for(epsilon, bottom.most), epsilon)
    columns = () if encoder is None else encoder.value_columns
    with memory.locked():
        if memory.has_same(name, embed.digests, own):
            return
        whole, rows = embed, JoinKeys(embed.digests, columns, embed.values)
        every = rows
        if table is not None:
            every = JoinKeys(table.grade_digests(table.digests), columns, table.value_reader(table.digests))
        former, _ = memory.other_releases(name, every)
        if encoder is not None and (former or len(every.digests) >= MIN_ROWS_PER_GRADE * own.bands):
            grades = own
            if table is not None:
                whole = RowEmbedder(bottom, table.encode_all(), every.digests)
                whole.limited = table.limited_columns()
                grades = own._replace(grades=grades_of_rows(bottom, whole.store, whole.ids).numpy())
            limits, (store, named) = grade_limits(job, party), beside(whole.store, encoder, whole.limited)
            check_names(named, limits, party)
            _check_numbers(named, place)
            found = Carried(grades=own.bands, epsilon=epsilon, bits=0.0, attributes=())
            if len(every.digests) >= MIN_ROWS_PER_GRADE * own.bands:  # of fewer, chance alone carries much
                found = grade_information(store, named, grades.grades, epsilon, own.bands)
                found = without_chance(found, len(every.digests))
            found = with_earlier_releases(found, store, named, grades, former)
            if drawing is not None and drawing.is_lowered:  # for a reason that is not known, the stricter one is taken
                why = recorded_reason(drawing, place)
                by_default = why.by_default or not why.attribute
                found = found.model_copy(update={"lowered": why.model_copy(update={"by_default": by_default})})
            check_limits(found, limits, party)
        memory.record(name, job.digest(), rows, own)


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
