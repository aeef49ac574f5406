"""`cutlayer init`: a first job from the tables in a folder, in a few questions."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import typer

from cutlayer.cli.app import answer
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.config.job import TaskKind
    from cutlayer.jobs.first_job import FirstJob, Overlap
    from cutlayer.jobs.found_tables import TableSummary


PROTECTED = ("labels", "columns", "both", "nothing")


@verb()
def init(
    folder: Path = Path(),
    *,
    owner: str | None = None,
    partner: list[str] | None = None,
    label: str | None = None,
    id: list[str] | None = None,  # noqa: A002
    protect: str | None = None,
    apart: bool | None = None,
    split_by: str | None = None,
    positive: str | None = None,
    task: str | None = None,
    rows: str | None = None,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Write a job.yaml for the tables in a folder, and with --apart a private file for each organisation.

    Args:
        folder: The folder with the parties' tables.
        owner: The file with the labels.
        partner: A partner's file; may be repeated.
        label: The column of the labels.
        id: The column that identifies a row; repeat it where the tables name it differently.
        protect: What to protect: labels, columns, both or nothing.
        apart: A private file for each organisation, or all in job.yaml.
        split_by: A column of the labels' owner, such as a date: test on the last rows, which partners learn.
        positive: Of two labels the one to call positive; default: the greater one.
        task: Kind of the labels: binary, multiclass or regression.
        rows: all rows of the labels' owner, or the common ones; default: all, if they differ.
        yes: Ask nothing: use the options, and guesses for the rest.

    Example: cutlayer init data --labels bank.csv --label default --protect labels --yes
    """
    from cutlayer.data.classes import listed_classes
    from cutlayer.jobs.first_job import files_of, label_of, overlap_of
    from cutlayer.jobs.found_tables import find_tables

    if not folder.is_dir():
        got = f"{folder}, which is a file" if folder.exists() else f"{folder}, which does not exist"
        raise ConfigError.expected("a folder with tables", got, "make it, and put the tables in it")
    tables = find_tables(folder, [owner, *partner] if owner and partner else [])
    asking = not (yes or json) and sys.stdin.isatty()
    job = _answered(tables, owner, partner or [], label, id or [], protect, apart, asking=asking)
    job = replace(job, task=_task(job, task, asking=asking))
    profile = label_of(job)
    job = replace(
        job,
        unlabelled=profile.missing,
        split_by=split_by,
        positive=_positive(profile.classes or {}, positive, asking=asking),
    )
    overlap = overlap_of(job)
    if overlap is not None and not overlap.common:
        whole = replace(job, whole_ids=True)
        if (found := overlap_of(whole)) is not None and found.common:
            job, overlap = whole, found
    chosen = _rows(job, overlap, rows)
    job = replace(job, rows=chosen, repeats=chosen == "all" and overlap is not None and overlap.repeats)
    files = files_of(job, folder)
    written = _write(folder, files)
    checks = _commands(job, folder, files)
    label_fields = profile.model_dump(mode="json", include={"name", "distinct", "classes", "notes"})
    answers = {"files": [str(path) for path in written], "task": job.task, "rows": job.rows, "label": label_fields}
    lines = [*(f"wrote {path}" for path in written), f"task: {job.task}"]
    if len({*job.ids.values()}) > 1:
        lines.append("ids: " + ", ".join(f"{column} of {file}" for file, column in job.ids.items()))
    if overlap is not None:
        which = f"all {overlap.rows:,} of {job.owner.party}" if job.rows == "all" else "those that all parties have"
        lines.append(f"rows: {which}; {overlap.common:,} of {overlap.rows:,} are with every party")
        if job.whole_ids:
            lines.append("ids: compared as whole numbers, since no row has the same one as it is written")
        if job.repeats:
            lines.append("several rows have one id: a partner's row serves each of them")
    if profile.classes and profile.distinct is not None:
        lines.append(": ".join(listed_classes(profile.classes, profile.distinct, job.positive or profile.positive)))
    if job.unlabelled:
        lines.append(f"left out: {job.unlabelled:,} of {job.owner.rows:,} rows, which have no label")
    if job.split_by is not None:
        lines.append(f"split: partners are sent which rows have the largest values of {job.split_by}")
    lines += [f"warning {profile.name}: {note}" for note in profile.notes]
    answer(json, {**answers, "next": checks}, *lines, "next:", *(f"  {command}" for command in checks))


def _answered(
    tables: Sequence[TableSummary],
    owner: str | None,
    partners: Sequence[str],
    label: str | None,
    keys: Sequence[str],
    protect: str | None,
    apart: bool | None,
    *,
    asking: bool,
) -> FirstJob:
    """The job, from the options, then from the questions on a terminal, then from guesses."""
    from cutlayer.jobs.column_guesses import candidates, guess, id_columns
    from cutlayer.jobs.first_job import FirstJob

    names = {table.path.name: table for table in tables}
    ids = id_columns(tables, keys)
    first = _owner_of(names, label) if owner or label else guess(tables, ids)[0].path.name
    chosen = names[_choice("Which table has the labels?", list(names), owner, first, asking=asking)]
    ids = _asked_ids(tables, ids) if asking and not keys else ids
    likely = candidates(chosen, ids[chosen.path.name])
    if label in chosen.columns and chosen.distinct[label] < 2:
        from cutlayer.data.labels import MISSING_LABELS

        raise ConfigError.expected(
            f"two or more different labels in {label} of {chosen.path.name}", "one", MISSING_LABELS
        )
    label = _choice("Which column is the label?", likely, label, (likely or [""])[0], asking=asking)
    others = [name for name in names if name != chosen.path.name]
    listed = list(partners) or others
    if asking and not partners and len(others) > 1:
        listed = typer.prompt("Whose tables take part?", default=", ".join(others)).replace(" ", "").split(",")
    chosen_partners = tuple(names[_choice("", others, name, name, asking=False)] for name in listed)
    protect = _choice("What has to stay private?", PROTECTED, protect, "labels", asking=asking)
    if apart is None:
        apart = asking and typer.confirm("Does each organisation run its own part?", default=False)
    return FirstJob(chosen, chosen_partners, label, ids, protect, apart)  # type: ignore[arg-type] # one of PROTECTED


def _task(job: FirstJob, option: str | None, *, asking: bool) -> TaskKind:
    """The kind of the task; asked where more than a few whole numbers may be quantities or codes of classes.

    Raises:
        ConfigError: There is no such task, or the labels do not fit it.
    """
    from cutlayer.config.job import TaskKind
    from cutlayer.jobs.first_job import MAX_CLASSES, check_task, has_whole_labels, task_of

    guessed, words = task_of(job), get_args(TaskKind)
    asking = asking and job.owner.distinct[job.label] > MAX_CLASSES and has_whole_labels(job)
    question = f"Are the {job.owner.distinct[job.label]:,} whole numbers of {job.label} quantities or classes?"
    word = _choice(question, words[1:] if asking and option is None else words, option, guessed, asking=asking)
    job = replace(job, task=word)  # type: ignore[arg-type] # one of TaskKind
    check_task(job)
    return task_of(job)


def _rows(job: FirstJob, overlap: Overlap | None, option: str | None) -> Literal["common", "all"]:
    """The rows of the run: all of the owner's where a partner lacks some, unless steps would train on no column.

    Raises:
        ConfigError: There is no such choice.
    """
    from cutlayer.jobs.first_job import releases_once

    partial = overlap is not None and (overlap.common < overlap.rows or overlap.repeats)
    if option is None:
        return "all" if partial and (job.has_features or releases_once(job)) else "common"
    if option not in ("common", "all"):
        raise ConfigError.expected("--rows common or all", option)
    return "all" if option == "all" else "common"


def _positive(classes: Mapping[str, int], option: str | None, *, asking: bool) -> str | None:
    """The label that is called positive, where it is not the greater of two.

    Raises:
        ConfigError: There are not two labels, or none of this name.
    """
    if len(classes) != 2:
        if option is not None:
            raise ConfigError.expected(
                "--positive with two different labels", f"{len(classes) or 'many'}", "leave it out"
            )
        return None
    greater = [*classes][-1]
    word = _choice("Which label is the positive one?", [*classes], option, greater, asking=asking)
    return None if word == greater else word


def _asked_ids(tables: Sequence[TableSummary], guessed: dict[str, str]) -> dict[str, str]:
    """The id column of each table, by the answer to a question; names that differ have commas between them."""
    from cutlayer.jobs.column_guesses import id_columns

    common = [name for name in tables[0].columns if all(name in table.columns for table in tables)]
    default = ", ".join(dict.fromkeys(guessed.values()))
    word = typer.prompt(f"Which column identifies a row? ({', '.join(common) or default})", default=default)
    return id_columns(tables, [word] if word in common else [name.strip() for name in word.split(",")])


def _owner_of(names: dict[str, Any], label: str | None) -> str:
    """The first table with the label's column, or the first table."""
    return next((name for name, table in names.items() if label in table.columns), next(iter(names)))


def _choice(question: str, known: Sequence[str], option: str | None, default: str, *, asking: bool) -> str:
    """One of the known words: the given one, the answer to a question, or the default.

    Raises:
        ConfigError: It is none of them; names a near miss.
    """
    from cutlayer.config import near_miss

    word = option
    if word is None:
        word = typer.prompt(f"{question} ({', '.join(known)})", default=default) if asking else default
    if word not in known:
        raise ConfigError(f"expected one of {', '.join(known)}, got {word!r}{near_miss(word, list(known))}")
    return word


def _write(folder: Path, files: dict[str, dict[str, Any]]) -> list[Path]:
    from cutlayer.config.load import as_yaml
    from cutlayer.jobs.first_job import GRADES, PUBLIC_SPLIT
    from cutlayer.storage.durable import check_output, write_whole

    check_output(*(folder / name for name in files), remedy="move it, or choose another folder")
    for name, values in files.items():
        # What the parties of a job share may be read by others; a private file states an organisation's protections.
        mode = 0o644 if name == "job.yaml" and len(files) > 1 else 0o600
        public = values.get("train", {}).get("split", {}).get("public")
        bottoms = values.get("model", {}).get("bottom", {}).values()
        graded = any(isinstance(bottom, dict) and bottom.get("kind") == "grade" for bottom in bottoms)
        lines = (*(GRADES if graded else ()), *(PUBLIC_SPLIT if public else ()))
        explained = "".join(f"# {line}\n" for line in lines)
        write_whole(folder / name, explained + as_yaml(values, flow=None), mode)
    return [folder / name for name in files]


def _commands(job: FirstJob, folder: Path, files: dict[str, dict[str, Any]]) -> list[str]:
    """Commands to run next."""
    if not job.apart:
        return [f"cutlayer check {folder / 'job.yaml'}", f"cutlayer run {folder / 'job.yaml'}"]
    parties = [name.removesuffix(".yaml") for name in files if name != "job.yaml"]
    return [f"cutlayer check {folder / 'job.yaml'} --as {name} --local {folder / f'{name}.yaml'}" for name in parties]
