"""The questions of `cutlayer init`: each answered by an option, on a terminal by the user, or else by a guess."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import typer

from cutlayer.cli.app import print_error
from cutlayer.config.names import AUTO, PROTECT_CHOICES
from cutlayer.errors import ConfigError, CutlayerError, DataError

if TYPE_CHECKING:
    from cutlayer.config.job import TaskKind
    from cutlayer.config.target import Target
    from cutlayer.jobs.first_job import FirstJob, Overlap
    from cutlayer.jobs.found_tables import TableSummary

EVENT_NAMES = re.compile(r"(^|_)(event|death|dead|died|status|churn(ed)?|observed|failure|failed)($|_)", re.I)
"""Names of columns that state whether an event happened."""
TEXT_ANSWER = "text"
_A = TypeVar("_A")


def ask_choice(question: str, known: Sequence[str], option: str | None, default: str, *, asking: bool) -> str:
    """One of the known words: the given one, the answer to a question, or the default.

    Raises:
        ConfigError: The option is none of them; names a near miss.
    """
    if option is not None or not asking:
        return _one_of(known, default if option is None else option)
    return ask_until_valid(f"{question} ({', '.join(known)})", default, lambda word: _one_of(known, word))


def ask_until_valid(question: str, default: str, read: Callable[[str], _A]) -> _A:
    """What the answer to a question means; after a wrong one it is asked again.

    Args:
        question: The question, without the default.
        default: The answer of an empty line.
        read: Reads an answer; its error is shown.
    """
    while True:
        try:
            return read(typer.prompt(question, default=default))
        except CutlayerError as wrong:
            print_error(str(wrong))


def _one_of(known: Sequence[str], word: str) -> str:
    from cutlayer.config import near_miss

    if word not in known:
        raise ConfigError(f"expected one of {', '.join(known)}, got {word!r}{near_miss(word, list(known))}")
    return word


def first_answers(
    tables: Sequence[TableSummary],
    owner: str | None,
    partners: Sequence[str],
    label: str | None,
    keys: Sequence[str],
    protect: str | None,
    apart: bool | None,
    remote_partners: Mapping[str, int],
    further_labels: Sequence[str] = (),
    *,
    asking: bool,
) -> FirstJob:
    """The job, from the options, then from the questions on a terminal, then from guesses."""
    from cutlayer.jobs.column_guesses import guess_label, label_candidates
    from cutlayer.jobs.first_job import FirstJob
    from cutlayer.jobs.guessed_star import RowIds, guess_row_ids

    names = {table.path.name: table for table in tables}
    known = owner or (_owner_of(names, label) if label else None)
    unknown = RowIds({name: names[name].columns[0] for name in names})
    ids, referring = _guess_or(lambda: guess_row_ids(tables, keys, known, label), unknown, asking=asking)
    first = _owner_of(names, label)
    if not (owner or label):
        first = _guess_or(lambda: guess_label(tables, ids)[0].path.name, first, asking=asking)
    several = asking and len(names) > 1
    chosen = names[ask_choice("Which table has the labels?", list(names), owner, first, asking=several)]
    if chosen.path.name in referring:  # the answer was another table than the guess
        ids, referring = _guess_or(lambda: guess_row_ids(tables, keys, chosen.path.name, label), unknown, asking=asking)
    ids = _ask_ids(tables, ids) if asking and not keys and not referring else ids
    likely = [name for name in label_candidates(chosen, ids[chosen.path.name]) if name not in referring.values()]
    if label in chosen.columns and chosen.distinct[label] < 2:
        from cutlayer.data.labels import MISSING_LABELS

        wanted = f"two or more different labels in {label} of {chosen.path.name}"
        raise ConfigError.expected(wanted, "one", MISSING_LABELS)
    label = ask_choice("Which column is the label?", likely, label, (likely or [""])[0], asking=asking)
    others = [name for name in names if name != chosen.path.name]
    listed = [_one_of(others, name) for name in partners] or ([] if remote_partners else others)
    if asking and not partners and len(listed) > 1:
        listed = ask_until_valid("Whose tables take part?", ", ".join(others), lambda words: _listed(words, others))
    protect = ask_choice("What has to stay private?", (AUTO, *PROTECT_CHOICES), protect, AUTO, asking=asking)
    if apart is None:
        apart = asking and typer.confirm("Does each organisation run its own part?", default=False)
    columns = {ids[chosen.path.name], *referring.values()}
    as_they_are = {*columns, *(name for name in (label, *further_labels) if chosen.has_classes(name))}
    chosen = with_formats(chosen, as_they_are, asking=asking)
    taking_part = tuple(with_formats(names[name], {ids[name]}, asking=asking) for name in listed)
    ids = {table.path.name: ids[table.path.name] for table in (chosen, *taking_part)}
    job = FirstJob(chosen, taking_part, label, ids, protect, apart, remote_partners)  # type: ignore[arg-type]
    referring = {name: referring[name] for name in listed if name in referring}
    return replace(job, referring=referring, further_labels=tuple(further_labels))


def with_formats(table: TableSummary, as_they_are: set[str], *, asking: bool) -> TableSummary:
    """The table with the formats of its columns that several ones read, as far as the user chooses one.

    Args:
        table: The table.
        as_they_are: Columns whose texts stay what they are: its id, and its label if that is a class.
        asking: Whether there is a terminal.
    """
    table = table.without_formats(as_they_are)
    for name, formats in table.ambiguous.items() if asking else ():
        words = {str(each.date or each.number): each for each in formats}
        question = f"How is {name} of {table.path.name} written?"
        answer = ask_choice(question, [*words, TEXT_ANSWER], None, TEXT_ANSWER, asking=True)
        table = table.with_format(name, words.get(answer))
    return table


def one_row_an_id(table: TableSummary, key: str, *, asking: bool) -> TableSummary:
    """A partner's table with one row of each id, made of the many that it has, unless the answer is no."""
    from cutlayer.jobs.column_guesses import has_rows_sharing_ids
    from cutlayer.jobs.guessed_aggregate import with_aggregate

    if not has_rows_sharing_ids(table, key):
        return table
    rows, ids = f"{table.rows:,} rows", f"{table.distinct[key]:,} ids {key}"
    question = f"{table.path.name} has {rows} of {ids}. Make one row of each id?"
    return with_aggregate(table, key) if not asking or typer.confirm(question, default=True) else table


def partner_names(
    tables: Sequence[TableSummary], option: Sequence[str] | None, widths: Sequence[str], *, asking: bool
) -> dict[str, int]:
    """The columns that each partner whose table is elsewhere releases, by its name.

    Raises:
        ConfigError: A name that no party may have, or a width that is no NAME=COLUMNS.
    """
    from cutlayer.jobs.first_job import DEFAULT_WIDTH

    names = _party_names(option) if option else []
    if not names and asking and len(tables) == 1:
        question = "Which organisations have the other columns? (names, with commas between)"
        names = ask_until_valid(question, "partner", lambda words: _party_names(words.split(",")))
    stated = {name: _width(name, number) for name, _, number in (each.partition("=") for each in widths)}
    if unknown := stated.keys() - {*names}:
        remedy = "name them with --partner-name"
        raise ConfigError.expected("--width of partners whose tables are not here", ", ".join(sorted(unknown)), remedy)
    for name in names if asking else ():
        if name not in stated:
            question = f"How many columns does {name} release, after encoding, at most?"
            stated[name] = ask_until_valid(question, str(DEFAULT_WIDTH), partial(_width, name))
    return {name: stated.get(name, DEFAULT_WIDTH) for name in names}


def _party_names(words: Sequence[str]) -> list[str]:
    from cutlayer.config.names import party_name

    names = [word.strip() for word in words]
    if len({*names}) < len(names):
        raise ConfigError.expected("a name of its own for each partner", ", ".join(names))
    try:
        return [party_name(name) for name in names]
    except ValueError as fault:
        raise ConfigError(f"--partner-name: expected {fault}") from None


def _width(name: str, number: str) -> int:
    if not (number.isdecimal() and 1 <= int(number) <= 4096):
        raise ConfigError.expected("--width as NAME=COLUMNS, 1 to 4096 columns", f"{name}={number}")
    return int(number)


def task_kind(job: FirstJob, option: str | None, *, asking: bool) -> TaskKind | Target:
    """The kind of the task; asked where more than a few whole numbers may be quantities or codes of classes.

    Raises:
        ConfigError: There is no such task, or the labels do not fit it.
    """
    from cutlayer.config.job import TASKS
    from cutlayer.jobs.first_job import check_task, has_whole_labels, task_of
    from cutlayer.jobs.found_tables import MAX_CLASSES

    guessed = task_of(job)
    asking = asking and job.owner.distinct[job.label] > MAX_CLASSES and has_whole_labels(job)
    question = f"What are the {job.owner.distinct[job.label]:,} whole numbers of {job.label}?"
    word = ask_choice(question, TASKS[1:] if asking and option is None else TASKS, option, guessed, asking=asking)
    job = replace(job, task=word)  # type: ignore[arg-type] # one of the words
    check_task(job)
    return task_of(job)


def second_column(
    job: FirstJob, event: str | None, exposure: str | None, group: str | None, *, asking: bool
) -> str | None:
    """The column of events of a task of survival, asked for or guessed; or of exposures, stated or named so.

    Raises:
        ConfigError: The task has none of the kind, or there is no such column.
    """
    columns = [name for name in job.owner.columns if name not in (job.label, job.ids[job.owner.path.name])]
    wanted = {"event": ("survival",), "exposure": ("count", "amount"), "group": ("ranking",)}
    for key, option in (("event", event), ("exposure", exposure), ("group", group)):
        if option is not None and job.task not in wanted[key]:
            tasks = " or ".join(wanted[key])
            raise ConfigError.expected(f"--{key} with --task {tasks}", f"task {job.task}", "leave it out or state that")
    if job.task == "survival":
        two = [name for name in columns if job.owner.distinct.get(name) == 2]
        guess = next((name for name in two if EVENT_NAMES.search(name)), two[0] if len(two) == 1 else None)
        if guess is None and event is None and not asking:
            raise ConfigError.expected("--event with --task survival", "none", "name the column of events, 1 or 0")
        return ask_choice(
            "Which column is 1 of an event, and 0 of a censored row?", columns, event, guess or "", asking=asking
        )
    if job.task == "ranking":
        if group is None and not asking:
            raise ConfigError.expected("--group with --task ranking", "none", "name the column of groups")
        return ask_choice("Which column has the groups that are ranked?", columns, group, "", asking=asking)
    if job.task in wanted["exposure"]:
        named = next((name for name in columns if name.lower() == "exposure"), None)
        return named if exposure is None else _one_of(columns, exposure)
    return None


def rows_of(job: FirstJob, overlap: Overlap, option: str | None) -> Literal["common", "all"]:
    """The rows of the run: all of the owner's where a partner lacks some, unless steps would train on no column.

    Raises:
        ConfigError: There is no such choice.
    """
    from cutlayer.jobs.first_job import releases_once

    if job.referring:
        if option == "common" or not (releases_once(job) or job.protect == AUTO):
            got = "--rows common" if option == "common" else f"--protect {job.protect}"
            remedy = f"leave it out: {', '.join(job.referring.values())} refer to partners, who release each row once"
            raise ConfigError.expected("--rows all and --protect labels or both", got, remedy)
        return "all"
    partial = bool(job.remote_partners) or overlap.common < overlap.rows or overlap.repeats
    if option is None:
        return "all" if partial and (job.has_features or releases_once(job)) else "common"
    if option not in ("common", "all"):
        raise ConfigError.expected("--rows common or all", option)
    return "all" if option == "all" else "common"


def positive_class(classes: Mapping[str, int], option: str | None, *, asking: bool) -> str | None:
    """The label that is called positive, where it is not the greater of two: `Yes` of `Yes` and `no`, unless stated.

    Raises:
        ConfigError: There are not two labels, or none of this name.
    """
    if len(classes) != 2:
        if option is not None:
            raise ConfigError.expected(
                "--positive with two different labels", f"{len(classes) or 'many'}", "leave it out"
            )
        return None
    from cutlayer.data.classes import reversed_classes_note

    lesser, greater = classes
    default = lesser if reversed_classes_note([*classes]) else greater
    word = ask_choice("Which label is the positive one?", [*classes], option, default, asking=asking)
    return None if word == greater else word


def _ask_ids(tables: Sequence[TableSummary], guessed: dict[str, str]) -> dict[str, str]:
    """The id column of each table, by the answer to a question; names that differ have commas between them."""
    from cutlayer.jobs.column_guesses import id_columns

    common = [name for name in tables[0].columns if all(name in table.columns for table in tables)]
    default = ", ".join(dict.fromkeys(guessed.values()))

    def read(word: str) -> dict[str, str]:
        return id_columns(tables, [word] if word in common else [name.strip() for name in word.split(",")])

    return ask_until_valid(f"Which column identifies a row? ({', '.join(common) or default})", default, read)


def _guess_or(guess: Callable[[], _A], other: _A, *, asking: bool) -> _A:
    """A guess; where there is none the user is asked, with another default.

    Raises:
        DataError: There is no guess, and nobody to ask.
    """
    try:
        return guess()
    except DataError:
        if not asking:
            raise
        return other


def _listed(words: str, others: Sequence[str]) -> list[str]:
    return [_one_of(others, word.strip()) for word in words.split(",")]


def _owner_of(names: dict[str, Any], label: str | None) -> str:
    """The first table with the label's column, or the first table."""
    return next((name for name, table in names.items() if label in table.columns), next(iter(names)))
