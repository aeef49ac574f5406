"""`cutlayer init`: a first job from the tables in a folder, in a few questions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.cli.app import print_result
from cutlayer.cli.first_files import columns_read
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cutlayer.data.profile import ColumnProfile
    from cutlayer.jobs.first_job import FirstJob, Overlap

MIN_ROWS = 3
"""Parts of the rows of a run, of which each has a row at least."""
KEYS = "keys"
"""Folder of the certificates of a party, beside its table."""


@verb()
def init(
    folder: Path = Path(),
    *,
    owner: str | None = None,
    partner: list[str] | None = None,
    label: str | None = None,
    further_label: list[str] | None = None,
    id: list[str] | None = None,  # noqa: A002
    protect: str | None = None,
    apart: bool | None = None,
    partner_name: list[str] | None = None,
    width: list[str] | None = None,
    name: str | None = None,
    split_by: str | None = None,
    positive: str | None = None,
    task: str | None = None,
    event: str | None = None,
    exposure: str | None = None,
    group: str | None = None,
    rows: str | None = None,
    overwrite: bool = False,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Write a job.yaml for the tables in a folder, and with --apart a private file for each organisation.

    Args:
        folder: The folder with the parties' tables.
        owner: The file with the labels.
        partner: A partner's file; may be repeated.
        label: The column of the labels.
        further_label: A column of further labels of the same task; may be repeated.
        id: The column that identifies a row; repeat it where the tables name it differently.
        protect: What to protect: labels, columns, both, proof (both, by private models), nothing, or auto, the default:
            both where the rows suffice.
        apart: A private file for each organisation, or all in job.yaml.
        partner_name: A partner whose table is not here; may be repeated. Implies --apart.
        width: Columns that such a partner releases, as NAME=COLUMNS; default: 64.
        name: At a partner: its name in the job.yaml of the folder. Writes its private file.
        split_by: A column of the labels' owner, such as a date: test on the last rows, which partners learn.
        positive: Of two labels the one to call positive; default: the greater one.
        task: Kind of the labels: binary, multiclass, regression, count, amount, severity, survival or ranking.
        event: Of --task survival, the column that is 1 of an event and 0 of a censored row.
        exposure: Of --task count or amount, a column of exposures, such as years insured.
        group: Of --task ranking, the column of groups; the split is by it unless --split-by names another.
        rows: all rows of the labels' owner, or the common ones; default: all, if they differ.
        overwrite: Replace the files of an earlier init.
        yes: Ask nothing: use the options, and guesses for the rest.

    Example: cutlayer init data --labels bank.csv --label default --protect labels --yes
    """
    from cutlayer.cli.first_files import write_first, write_partner
    from cutlayer.cli.questions import first_answers, partner_names, second_column, task_kind
    from cutlayer.config.names import AUTO, GRADE_CHOICES
    from cutlayer.jobs.first_job import check_further_labels
    from cutlayer.jobs.found_tables import find_tables
    from cutlayer.results.provenance import is_predictions

    if not folder.is_dir():
        got = f"{folder}, which is a file" if folder.exists() else f"{folder}, which does not exist"
        raise ConfigError.expected("a folder with tables", got, "make it, and put the tables in it")
    asking = not (yes or json) and sys.stdin.isatty()
    partners = partner or []
    if name is not None:
        document, lines = write_partner(folder, name, partners, id or [], protect, overwrite=overwrite, asking=asking)
        print_result(json, document, *lines)
        return
    named = [owner, *partners] if owner and (partners or partner_name) else []
    tables = find_tables(folder, named, min_tables=1 if partner_name or asking else 2)
    elsewhere = partner_names(tables, partner_name, width or [], asking=asking)
    apart = apart or bool(elsewhere) or None
    job = first_answers(
        tables, owner, partners, label, id or [], protect, apart, elsewhere, further_label or [], asking=asking
    )
    job = _identified(job, folder) if job.apart else job
    job = replace(job, task=task_kind(job, task, asking=asking))
    job = replace(job, second=second_column(job, event, exposure, group, asking=asking))
    split_by = split_by or (job.second if job.task == "ranking" else None)
    job, lines = complete_job(job, split_by, positive, rows, asking=asking)
    predictions = sorted(path.name for path in folder.iterdir() if path.name not in named and is_predictions(path))
    lines += [f"left out: {file}, which holds predictions of a run" for file in predictions]
    check_further_labels(job, None if task is None else job.task)
    if job.protect in (AUTO, *GRADE_CHOICES):
        job, protected = _protected(job)
        lines += protected
    document, written = write_first(job, folder, overwrite=overwrite)
    print_result(json, document, *written, *lines, "next:", *(f"  {command}" for command in document["next"]))


def _protected(job: FirstJob) -> tuple[FirstJob, list[str]]:
    """The job with what is protected as the rows allow, and lines on it."""
    from cutlayer.jobs.first_job import grades_choice
    from cutlayer.jobs.private_part import model_columns

    grades = grades_choice(job)
    several = "; each label by draws and grades of its own, whose costs add up" * bool(job.further_labels)
    lines = [f"protected: {grades.sentence}{several * (grades.epsilon is not None)}"]
    lines += [
        f"warning {table.party}: it has one column, of which a grade tells nearly all: check says what follows"
        for table in job.partners
        if grades.epsilon is not None and len(model_columns(table, {job.ids[table.path.name]})) == 1
    ]
    return replace(job, protect=grades.protect), lines


def _identified(job: FirstJob, folder: Path) -> FirstJob:
    """The job with the owner's name and federation as the certificate in its folder `keys` has them, if it has one.

    Raises:
        TrustError: The certificate or its key is damaged.
    """
    from cutlayer.channel.tls.authority import own_identity
    from cutlayer.config.identities import SCHEME

    stated = own_identity(folder / KEYS)
    federation, _, name = (stated or "").removeprefix(SCHEME).rpartition("/")
    # An identity of another form is not of this program's keys: the user writes it into the job.
    if not federation or "/" in federation:
        return job
    return replace(job, owner=replace(job.owner, owner_name=name), federation=federation)


def complete_job(
    job: FirstJob, split_by: str | None, positive: str | None, rows: str | None, *, asking: bool
) -> tuple[FirstJob, list[str]]:
    """The job with what follows from its tables, and the lines that say so.

    Raises:
        CutlayerError: An option that does not fit, or ids of a partner of which many have several rows.
    """
    from cutlayer.cli.questions import one_row_an_id, positive_class, rows_of
    from cutlayer.jobs.column_guesses import repeated_ids_note
    from cutlayer.jobs.first_job import all_have_class, label_of, with_matching_ids

    profile = label_of(job)
    chosen_class = positive_class(profile.classes or {}, positive, asking=asking)
    if positive is None and not asking and not all_have_class(job, chosen_class):
        chosen_class = None  # a job has one for all of its labels
    job = replace(job, unlabelled=profile.missing, split_by=split_by, positive=chosen_class)
    profile = profile if chosen_class is None else label_of(job)
    partners = tuple(one_row_an_id(table, job.ids[table.path.name], asking=asking) for table in job.partners)
    job = replace(job, partners=partners)
    repeated = {table.path.name: repeated_ids_note(table, job.ids[table.path.name]) for table in job.partners}
    job = replace(job, first_rows=frozenset(file for file, sentence in repeated.items() if sentence))
    job, overlap = with_matching_ids(job)
    which = rows_of(job, overlap, rows)
    usable = overlap.rows if which == "all" else overlap.common
    if usable < MIN_ROWS:
        raise DataError.expected("three rows or more, to train, choose and test a model on", usable)
    job = replace(job, rows=which, repeats=which == "all" and overlap.repeats, overlap=overlap)
    if overlap.repeats and which == "common":
        file = job.owner.path.name
        repeated[file] = repeated_ids_note(job.owner, job.ids[file])
        job = replace(job, first_rows=job.first_rows | {file}, overlap=None)  # each id counts once now
    return job, [*_facts(job, overlap, profile), *(f"warning {each}" for each in repeated.values() if each)]


def _task_note(job: FirstJob) -> str:
    """What a label has besides: a second column; and of counts, why they are taken for some."""
    from cutlayer.config.target import SECOND_COLUMNS
    from cutlayer.jobs.first_job import count_zeros

    note = "" if job.second is None else f", with {job.second} as {SECOND_COLUMNS[job.task or '']}"
    if job.task == "count" and (zeros := count_zeros(job)) is not None:
        note += f": whole numbers, {zeros:.0%} of them 0; --task regression takes them for plain values"
    return note


def _facts(job: FirstJob, overlap: Overlap, label: ColumnProfile) -> Iterator[str]:
    """What was found in the tables, a line each."""
    from cutlayer.data.classes import class_listing
    from cutlayer.jobs.guessed_aggregate import aggregate_lines

    labels = " and ".join((job.label, *job.further_labels))
    yield f"task: {job.task}, of {labels} in {job.owner.path.name}{_task_note(job)}"
    for file, column in job.referring.items():
        yield f"ids: {column} of {job.owner.path.name} refers to {job.ids[file]} of {file}"
    if job.referring:
        yield f"ids: {job.ids[job.owner.path.name]} names the rows of {job.owner.path.name}"
    elif job.remote_partners or len({*job.ids.values()}) > 1:
        yield "ids: " + ", ".join(f"{column} of {file}" for file, column in job.ids.items())
    which = f"all {overlap.rows:,} of {job.owner.party}" if job.rows == "all" else "those that all parties have"
    met = f"{overlap.common:,} of {overlap.rows:,} are with every party"
    yield f"rows: {which}; {'how many a partner has is not known yet' if job.remote_partners else met}"
    if job.whole_ids:
        yield "ids: compared as whole numbers, since no row has the same one as it is written"
    if job.repeats:
        yield "several rows have one id: a partner's row serves each of them"
    if label.classes and label.distinct is not None:
        yield ": ".join(class_listing(label.classes, label.distinct, job.positive or label.positive))
    if job.unlabelled:
        yield f"left out: {job.unlabelled:,} of {job.owner.rows:,} rows, which have no label"
    if job.split_by is not None:
        yield f"split: partners are sent which rows have the largest values of {job.split_by}"
    yield from columns_read(job.owner, job.reserved)
    for table in job.partners:
        yield from columns_read(table, {job.ids[table.path.name]})
        yield from aggregate_lines(table)
    yield from (f"warning {label.name}: {note}" for note in label.notes)
