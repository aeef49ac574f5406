"""The files that `cutlayer init` writes: a job, private files, and a page for partners; and what it says of columns."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.jobs.first_job import FirstJob
    from cutlayer.jobs.found_tables import TableSummary
    from cutlayer.jobs.private_part import PartnerTerms

JOB_FILE = "job.yaml"
PARTNER_PAGE = "for-partners.md"


def write_first(job: FirstJob, folder: Path, *, overwrite: bool) -> tuple[dict[str, Any], list[str]]:
    """Write a first job, and between organisations its private files.

    Returns:
        What a program reads of it, and lines of text.

    Raises:
        CutlayerError: A file is there already, or a table does not fit.
    """
    from cutlayer.jobs.first_job import job_files, label_of

    files = job_files(job, folder)
    pages = {PARTNER_PAGE: _page(job, files[JOB_FILE])} if job.remote_partners else {}
    _check_new([*files, *pages], folder, overwrite=overwrite)
    tables = {job.owner.party: job.owner} | {table.party: table for table in job.partners}
    for name, values in files.items():
        about = tables if len(files) == 1 else {k: v for k, v in tables.items() if name == f"{k}.yaml"}
        comments = [line for party, table in about.items() for line in _comments(party, table, _reserved(job, table))]
        _write(folder / name, values, comments, shared=name == JOB_FILE and len(files) > 1)
    for name, text in pages.items():
        _write_text(folder / name, text, shared=True)
    label = label_of(job).model_dump(mode="json", include={"name", "distinct", "classes", "notes"})
    written = [str(folder / name) for name in (*files, *pages)]
    document = {
        "files": written,
        "task": job.task,
        "rows": job.rows,
        "label": label,
        "columns": {table.path.name: _document(table, _reserved(job, table)) for table in tables.values()},
        "next": _commands(job, folder, [*files]),
    }
    address = files[JOB_FILE]["parties"][job.owner.party].get("address")
    placeholder = f"address: write the host and port that partners reach in place of {address} in {JOB_FILE}"
    return document, [*(f"wrote {path}" for path in written), *([placeholder] if address else [])]


def write_partner(
    folder: Path,
    name: str,
    files: Sequence[str],
    keys: Sequence[str],
    protect: str | None,
    *,
    overwrite: bool,
    asking: bool,
) -> tuple[dict[str, Any], list[str]]:
    """Write the private file of a partner, from the job that it was sent and from its own table.

    Args:
        folder: Folder with both.
        name: Name of the partner in the job.
        files: Name of the file of its table, where the folder has several.
        keys: Name of its id column; guessed without one.
        protect: What the partner protects besides what the job asks for.
        overwrite: Whether an earlier file is replaced.
        asking: Whether there is a terminal.

    Returns:
        What a program reads of it, and lines of text.

    Raises:
        CutlayerError: The job has no such partner, or the table does not fit.
    """
    from cutlayer.cli.questions import ask_choice, one_row_an_id
    from cutlayer.config.load import load_closed_job
    from cutlayer.config.names import PROTECT_CHOICES
    from cutlayer.config.wording import did_you_mean
    from cutlayer.jobs.column_guesses import repeated_ids_note
    from cutlayer.jobs.guessed_aggregate import aggregate_lines
    from cutlayer.jobs.private_part import PartnerTerms, partner_section

    job = load_closed_job(folder / JOB_FILE)
    if name not in job.passives:
        near = did_you_mean(name, [*job.passives]).removeprefix("; ")
        if name == job.active:
            near = "the label owner writes its files by --partner-name"
        raise ConfigError.expected(f"--as with a partner of the job ({', '.join(job.passives)})", name, near)
    table, key = _own_table(folder, files, keys, asking=asking)
    table = one_row_an_id(table, key, asking=asking)
    protect = ask_choice("What has to stay private?", PROTECT_CHOICES, protect, "labels", asking=False)
    terms = PartnerTerms.of(job, name, protect)
    repeated = repeated_ids_note(table, key)
    ids = {"column": key, "duplicates": "first"} if repeated else key
    section = partner_section(table, key, ids, folder, terms)
    private = folder / f"{name}.yaml"
    _check_new([private.name], folder, overwrite=overwrite)
    _write(private, section, [*_comments(name, table, {key})], shared=False)
    lines = [f"wrote {private}", f"id: {key} of {table.path.name}", *columns_read(table, {key})]
    lines += aggregate_lines(table)
    lines += [*_width_line(table, key, terms, job.active, name), *([f"warning {repeated}"] if repeated else [])]
    check = f"cutlayer check {folder / JOB_FILE} --as {name} --local {private}"
    document = {"files": [str(private)], "columns": {table.path.name: _document(table, {key})}, "next": [check]}
    return document, [*lines, "next:", f"  {check}"]


def _own_table(folder: Path, files: Sequence[str], keys: Sequence[str], *, asking: bool) -> tuple[TableSummary, str]:
    """The table of a partner in its folder, and its id column."""
    from cutlayer.cli.questions import ask_choice, with_formats
    from cutlayer.jobs.column_guesses import id_columns
    from cutlayer.jobs.found_tables import find_tables

    tables = {table.path.name: table for table in find_tables(folder, files, min_tables=1)}
    if len(tables) > 1 and not files and not asking:
        raise ConfigError.expected("one table", ", ".join(tables), "name yours with --partner")
    several = asking and len(tables) > 1
    file = ask_choice("Which table is yours?", [*tables], next(iter(files), None), next(iter(tables)), asking=several)
    guessed = id_columns([tables[file]], keys)[file]
    stated = guessed if keys else None
    key = ask_choice("Which column identifies a row?", tables[file].columns, stated, guessed, asking=asking)
    return with_formats(tables[file], {key}, asking=asking), key


def _width_line(table: TableSummary, key: str, terms: PartnerTerms, owner: str, name: str) -> Iterator[str]:
    """What a partner's release leaves out, where the job has too few columns for it."""
    from cutlayer.jobs.private_part import encoded_width, sketch_width

    needed = encoded_width(table, key)
    if terms.release == "sketch" and terms.width is not None and terms.width < needed:
        yield (
            f"width: the job takes {terms.width} of your columns, and your table has {needed} after encoding; with "
            f"fewer it loses some. {owner} can write width: {sketch_width(table, key)} for {name} in {JOB_FILE}"
        )


def columns_read(table: TableSummary, reserved: Collection[str | None]) -> Iterator[str]:
    """How the columns of a table are read that are not read as they are, a line each.

    Args:
        table: The table.
        reserved: Its id, its label and the column of its split.
    """
    from cutlayer.jobs.private_part import infinite_columns

    file = table.path.name
    if table.formats:
        each = (f"{name} {_example(stated.model_dump(exclude_none=True))}" for name, stated in table.formats.items())
        yield f"formats of {file}: {', '.join(each)}"
    left_out = [f"{name} ({reason})" for name, reason in table.left_out.items() if name not in reserved]
    if table.nameless:
        left_out.append(f"{table.nameless} column{'s' * (table.nameless > 1)} without a name")
    if left_out:
        yield f"left out of {file}: {', '.join(left_out)}"
    if infinite := infinite_columns(table, reserved):
        yield f"warning {', '.join(infinite)} of {file}: infinite numbers are taken for missing (numbers.infinite)"
    for name, formats in table.ambiguous.items():
        words = [_example(stated.model_dump(exclude_none=True)) for stated in formats]
        kind = "date" if formats[0].date else "number"
        line = f'formats: {{{name}: {{{kind}: "{words[0]}"}}}}'
        line = f"{line} into its table" if table.layout else f"table: {{path: {file}, {line}}}"
        yield f"warning {name} of {file}: read as text, since {' and '.join(words)} both read it; write {line}"


def _example(stated: dict[str, Any]) -> str:
    words = stated.get("date") or stated.get("number")
    return str(words) if words else "/".join(stated["boolean"])


def _document(table: TableSummary, reserved: Collection[str | None]) -> dict[str, Any]:
    """The same for a program."""
    return {
        "formats": {name: each.model_dump(mode="json", exclude_none=True) for name, each in table.formats.items()},
        "left_out": {name: reason for name, reason in table.left_out.items() if name not in reserved},
        "ambiguous": {
            name: [each.model_dump(mode="json", exclude_none=True) for each in formats]
            for name, formats in table.ambiguous.items()
        },
    }


def _comments(party: str, table: TableSummary, reserved: Collection[str | None]) -> Iterator[str]:
    """Why columns are left out, for the file that says so."""
    reasons = [f"{name}: {reason}" for name, reason in table.left_out.items() if name not in reserved]
    if reasons:
        yield f"{party}.features.exclude leaves out what says nothing of a new row:"
        yield from (f"  {reason}" for reason in reasons)


def _reserved(job: FirstJob, table: TableSummary) -> set[str | None]:
    return job.reserved if table is job.owner else {job.ids[table.path.name]}


def _check_new(names: Sequence[str], folder: Path, *, overwrite: bool) -> None:
    from cutlayer.storage.durable import check_output

    remedy = "choose another folder, or replace what is there with --overwrite"
    check_output(*(folder / name for name in names), remedy=remedy, overwrite=overwrite)


def _write(path: Path, values: dict[str, Any], comments: Sequence[str], *, shared: bool) -> None:
    from cutlayer.config.load import as_yaml
    from cutlayer.jobs.first_job import FLAGS_COMMENT, GRADES_COMMENT, PUBLIC_SPLIT_COMMENT, WIDTHS_COMMENT

    public = values.get("train", {}).get("split", {}).get("public")
    bottoms = [each for each in values.get("model", {}).get("bottom", {}).values() if isinstance(each, dict)]
    kinds = {each.get("kind") for each in bottoms}
    numbers = [part.get("features", {}).get("numbers", {}) for part in (values, *values.get("parties", {}).values())]
    lines = (
        *(GRADES_COMMENT if "grade" in kinds else ()),
        *(WIDTHS_COMMENT if "linear" in kinds else ()),
        *(FLAGS_COMMENT if any(each.get("quantiles") == 1 for each in numbers) else ()),
        *(PUBLIC_SPLIT_COMMENT if public else ()),
        *comments,
    )
    explained = "".join(f"# {line}\n" for line in lines)
    text = re.sub(r":\n +(boolean: \[.*\])\n", r": {\1}\n", as_yaml(values, flow=None))  # a line for each format
    _write_text(path, explained + text, shared=shared)


def _write_text(path: Path, text: str, *, shared: bool) -> None:
    from cutlayer.storage.durable import write_whole

    # What the parties of a job share may be read by others; a private file states an organisation's protections.
    write_whole(path, text, 0o644 if shared else 0o600)


def _commands(job: FirstJob, folder: Path, files: Sequence[str]) -> list[str]:
    """Commands to run next."""
    if not job.apart:
        # A link leads out of the folder, and the verbs ask for consent to what a job reads there.
        tables = [table.path.resolve() for table in (job.owner, *job.partners)]
        outside = [path for path in tables if not path.is_relative_to(folder.resolve())]
        allowed = "".join(f" --allow-path {shlex.quote(str(path))}" for path in outside)
        return [f"cutlayer check {folder / JOB_FILE}{allowed}", f"cutlayer run {folder / JOB_FILE}{allowed}"]
    parties = [name.removesuffix(".yaml") for name in files if name != JOB_FILE]
    # The names in a job are those in the certificates.
    keys = [f"cutlayer keys init {job.owner.party}"] if job.remote_partners and job.federation is None else []
    return [
        f"cutlayer check {folder / JOB_FILE} --as {name} --local {folder / f'{name}.yaml'}" for name in parties
    ] + keys


def _page(job: FirstJob, shared: dict[str, Any]) -> str:
    """What the partners of a job do, in Markdown."""
    owner, one = job.owner.party, next(iter(job.remote_partners))
    return f"""# For the partners of {owner}: {", ".join(job.remote_partners)}

You were sent `{JOB_FILE}` and this page. Nothing of yours leaves before you start your part. If `{JOB_FILE}` has \
another
name for you, write it in place of `{one}`.

1. Put `{JOB_FILE}` into a folder with your table: a CSV, Parquet or Excel file, one row per id. Write ids as {owner}
   does; ask how.
2. Write your private file, which stays with you:

       cutlayer init . --as {one}

3. See how your columns are read, and what your releases reveal and cost:

       cutlayer check {JOB_FILE} --as {one} --local {one}.yaml

4. Make your certificate from the invitation that {owner} sends you:

       cutlayer keys request {one}.invite

5. Start your part; {owner} starts its own:

       cutlayer party {JOB_FILE} --as {one} --local {one}.yaml

## What {JOB_FILE} asks of you

{_release_request(job, shared)}
"""


def _release_request(job: FirstJob, shared: dict[str, Any]) -> str:
    from cutlayer.jobs.first_job import releases_once

    owner = job.owner.party
    noise = f"`cutlayer init . --as {next(iter(job.remote_partners))} --protect columns` adds noise with a guarantee."
    if not releases_once(job):
        by_steps = f"Your model is trained by steps: in every epoch {owner} receives an embedding of each row."
        return f"{by_steps}\nIt may rebuild your columns from them. {noise}"
    if any(shared["model"]["bottom"][name]["kind"] == "grade" for name in job.remote_partners):
        once = "Once, one drawn grade of each row, which your epsilon covers: four bits at most."
        return f"{once}\n`--protect proof` in step 2 makes the model of your grades private too."
    widths = "\n".join(f"- `{name}`: at most {width} columns a row" for name, width in job.remote_partners.items())
    unprotected = f"Without a protection {owner} can read your columns from them."
    return f"Once, your columns after encoding:\n\n{widths}\n\n{unprotected}\n{noise}"
