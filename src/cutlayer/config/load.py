"""Reads job and party files (YAML 1.2), and writes a job back as it was run."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import Node, ScalarNode

from cutlayer.config.base import validated
from cutlayer.config.job import Job
from cutlayer.config.lines import line_of
from cutlayer.config.party import PartyConfig, PrivateFile, PrivatePart
from cutlayer.config.reaches import closed, reaches
from cutlayer.config.table import names_in
from cutlayer.config.wording import did_you_mean
from cutlayer.consent import check_links, check_open
from cutlayer.errors import ConfigError

MAX_BYTES = 1_048_576
"""Maximum size of a file, which the parser reads at some 50 kB a second."""
MAX_VALUES = 1_000_000
"""Maximum number of values in a file, with aliases and ranges of names written out."""
_MAX_DIGITS = 1_000
"""Maximum length of a whole number in a file: Python writes out no number of more than 4,300 digits."""
_RUN_PATHS = ("runs", "runs/*", ".cutlayer", ".cutlayer/*", ".cutlayer/*/*")
"""Where runs and long-lived secrets are written next to a job."""
_INT = "tag:yaml.org,2002:int"


def load_job(path: Path) -> Job:
    """Read a job file to run it; relative paths in it are relative to its folder.

    Raises:
        ConfigError: Missing, not YAML, a key twice, an unknown key, or a value out of range; or it names something
            outside of its folder, without consent.
    """
    with _prefix_errors(path):
        job = job_from_values(read_yaml(path), path.parent)
        check_links(path.parent, *_RUN_PATHS)
        return job


def load_whole_job(path: Path) -> Job:
    """Read the file of a job that one process runs, whose tables are files.

    Raises:
        ConfigError: As `load_job`; or no party has a table, as in the part that parties apart share.
    """
    job = load_job(path)
    if all(party.table is None for party in job.parties.values()):
        remedy = f"name each party's file, or take one party with its private file: --as {job.active} --local FILE"
        with _prefix_errors(path):
            raise ConfigError.expected("a table of each party", "a job for parties apart, without any", remedy)
    return job


def job_from_values(raw: object, folder: Path) -> Job:
    """A job from the values of its file, to be run.

    Args:
        raw: Plain values.
        folder: Folder of the file.

    Raises:
        ConfigError: As `load_job`.
    """
    job = validated(Job, raw, "", folder.resolve())
    check_open([*reaches(job)], folder)
    return job


def load_closed_job(path: Path) -> Job:
    """Read a job file to know what was agreed or trained: that of a run folder, or the part that all parties share.

    What it names outside of its folder is dropped, unless there is consent: nothing of it can be opened.

    Raises:
        ConfigError: Missing, not YAML, a key twice, an unknown key, or a value out of range.
    """
    with _prefix_errors(path):
        return closed(validated(Job, read_yaml(path), "", path.parent.resolve()), path.parent)


def load_private_part(path: Path) -> PrivateFile:
    """Read one organisation's private party file.

    Raises:
        ConfigError: It cannot be read, or is a job.
    """
    with _prefix_errors(path):
        raw = read_yaml(path)
        if isinstance(raw, dict) and {"parties", "model"} <= raw.keys():
            wanted = "one organisation's private file, with its table"
            raise ConfigError.expected(wanted, "a job of all parties", "name the file that init wrote for this one")
        return validated(PrivateFile, raw, "", path.parent.resolve())


def with_private_part(job: Job, name: str, part: PrivatePart) -> Job:
    """The job with one party's private part filled in.

    Raises:
        ConfigError: The job has no such party.
    """
    if name not in job.parties:
        raise ConfigError.expected(f"a party of the job ({', '.join(job.parties)})", name)
    private = {key: getattr(part, key) for key in PrivatePart.model_fields}
    shared = {key: getattr(job.parties[name], key) for key in PartyConfig.model_fields if key not in private}
    whole = PartyConfig(**shared, **private)
    return job.model_copy(update={"parties": {**job.parties, name: whole}})


def with_device(job: Job, device: str | None, name: str | None = None) -> Job:
    """The job with the device of a party, or of all parties, replaced.

    Args:
        job: The job.
        device: The device, as in `PrivatePart`; `None` leaves the job as it is.
        name: Name of the party; `None` is all.

    Raises:
        ConfigError: No device of that form.
    """
    if device is None:
        return job
    checked = validated(PrivatePart, {"device": device}, "").device
    return job.with_parties({party: {"device": checked} for party in ([name] if name else job.parties)})


def read_yaml(path: Path) -> Any:
    """Parse a YAML file to plain values.

    Raises:
        ConfigError: Missing, not YAML, or a key that repeats.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError.expected(f"up to {MAX_BYTES:,} bytes", "more", "is it the right file?")
        text = content.decode()
    except UnicodeDecodeError:
        raise ConfigError.expected("text in UTF-8", "other bytes", "is it the right file?") from None
    except OSError as failure:
        near = did_you_mean(path.name, _yaml_files(path.parent)) if isinstance(failure, FileNotFoundError) else ""
        if isinstance(failure, IsADirectoryError):
            near = f"; name a file in it, such as {path / 'job.yaml'}"
        raise ConfigError(f"cannot be read: {failure.strerror}{near}") from None
    try:
        raw = copy.deepcopy(_parsed(text))
    except DuplicateKeyError as twice:
        problem = str(twice.problem).partition(" with value")[0]
        raise ConfigError(f"{problem}, {_line(twice)}; every party and every key may appear once") from None
    except YAMLError as fault:
        problem = getattr(fault, "problem", None) or str(fault).splitlines()[0]
        remedy = "; indent with spaces" if "\\t" in problem else ""
        raise ConfigError(f"not YAML: {problem}, {_line(fault)}{remedy}") from None
    except RecursionError:
        raise ConfigError.expected("a job of a few levels", "one nested too deeply", "is it the right file?") from None
    except ValueError as fault:  # a date or number that YAML's grammar admits and its type does not
        raise ConfigError(f"not YAML: {str(fault)[:200]}; write it in quotes if it is text") from None
    except KeyError as fault:  # !!bool of another word
        raise ConfigError.expected("a value of the type in its tag", str(fault)[:80], "leave the tag out") from None
    if not isinstance(raw, dict):
        got = "nothing" if raw is None else "a list" if isinstance(raw, list) else f"{str(raw)[:40]!r}"
        raise ConfigError.expected("keys and values, such as parties:", got, "cutlayer init writes one")
    return raw


@lru_cache(maxsize=16)
def _parsed(text: str) -> Any:
    """Plain values of a text; a run reads its job several times, and the parser takes longer than a small check."""
    constructor, _ = YAML(typ="safe", pure=True).get_constructor_parser(text)
    node = constructor.composer.get_single_node()
    if node is None:
        return None
    # Before construction, which writes out merged mappings and converts numbers of any length.
    if _values_of(node, {}) > MAX_VALUES:
        got = "aliases (*name) or ranges (I1..I13) that stand for more of them"
        raise ConfigError.expected(f"up to {MAX_VALUES:,} values", got, "is it the right file?")
    return constructor.construct_document(node)


def _values_of(node: Node, counts: dict[int, int]) -> int:
    """Number of keys and values with aliases and ranges written out: few lines stand for more than memory holds.

    Args:
        node: A node of the document, not constructed yet.
        counts: Numbers so far, by the identity of the node.

    Raises:
        ConfigError: A whole number that is too long.
    """
    if isinstance(node, ScalarNode):
        if node.tag == _INT and len(node.value) > _MAX_DIGITS:
            raise ConfigError.expected(f"whole numbers of up to {_MAX_DIGITS:,} digits", f"{len(node.value):,}")
        return names_in(node.value)
    if id(node) not in counts:
        counts[id(node)] = MAX_VALUES + 1  # of one that holds itself
        flat = [part for child in node.value for part in (child if isinstance(child, tuple) else (child,))]
        counts[id(node)] = 1 + sum(_values_of(part, counts) for part in flat)
    return counts[id(node)]


def dump_job(job: Job) -> str:
    """The job as YAML, without keys that have their default value."""
    return as_yaml(job.model_dump(mode="json", exclude_defaults=True))


def as_yaml(values: object, yaml: YAML | None = None, *, flow: bool | None = False) -> str:
    """Nested values as YAML, in their order.

    Args:
        values: Plain values, or those that `yaml` has loaded.
        yaml: What has loaded them, to be written with their comments and styles.
        flow: Whether collections are on one line; `None` writes those without others inside so.
    """
    stream = io.StringIO()
    writer = yaml or YAML(typ="safe", pure=True)
    writer.default_flow_style = flow
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.dump(values, stream)
    return stream.getvalue()


def _yaml_files(folder: Path) -> list[str]:
    """Names of the YAML files of a folder; none if it is not readable."""
    with suppress(OSError):
        return sorted(path.name for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    return []


def _line(fault: Any) -> str:
    mark = getattr(fault, "problem_mark", None)
    return f"line {mark.line + 1}" if mark else "line unknown"


@contextmanager
def _prefix_errors(path: Path) -> Iterator[None]:
    """Begin every sentence of an error with the path of the file, and the line that it is about."""
    try:
        yield
    except ConfigError as fault:
        raise ConfigError("\n".join(_with_line(path, line) for line in str(fault).splitlines())) from None


def _with_line(path: Path, sentence: str) -> str:
    line = line_of(path, sentence)
    return f"{path}: {sentence}" if line is None else f"{path}:{line}: {sentence}"
