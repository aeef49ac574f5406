"""Verbs from functions: each parameter is an argument or an option, and the docstring says what it means."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, Literal, TypeVar, cast, get_type_hints

import typer

from cutlayer.cli.app import app
from cutlayer.consent import allowed

FLAGS = {
    "apart": "--apart/--together",
    "forget": "--forget-peer-progress",
    "name": "--as",
    "owner": "--labels",
    "purpose": "--for",
    "round_": "--round",
    "seen": "--fingerprint",
}
"""Options that are not called as their parameter."""
SHARED = {
    "absent": "A passive party that does not answer; may be repeated.",
    "allow_host": "A host, or HOST:PORT, that the file may connect to and send to; may be repeated.",
    "allow_model": "A module that the file may import, and so execute: of a model or a plugin; may be repeated.",
    "allow_path": "A file or folder outside of the file's own folder that it may read and write; may be repeated.",
    "deadline": "Seconds that a connected party may take for a single step.",
    "device": "Where the parties here train: cpu, cuda, cuda:N or auto; in place of their `device`.",
    "forget": "With --resume: continue although another party lost its progress; "
    "rows released again are counted again.",
    "job": "The job file (YAML).",
    "json": "Print one JSON document, and nothing else, on standard output.",
    "key": "A 32-byte file used for all noise: repeatable, and marked not private.",
    "local": "This organisation's private party file.",
    "max_drift": "Exit with 6 if rows drifted from the training by more (PSI); drifted columns are not released.",
    "name": "The party of the job that this process runs.",
    "overwrite": "Replace the file or table of --out if there is one; never one that is read, or belongs to the run.",
    "path": "The run folder.",
    "pilot": "Release so many random rows alone, 100 or more, to estimate what all would add; the same at all parties.",
    "plaintext": "Link without TLS and certificates; only between processes of this machine.",
    "quiet": "Show no progress on standard error.",
    "reconnect": "Seconds within which a broken connection may be replaced; default: 30, and 0 with --plaintext.",
    "release": "A file of cutlayer release, one of each partner, in place of connections; at the label owner.",
    "resume": "Continue the interrupted run in the folder.",
    "rows": "With files: the common rows, by the CSV file of cutlayer align. Default: all rows.",
    "timeout": "Seconds to wait for the other parties to connect.",
}
"""Meanings of the parameters that several verbs have, unless a verb's docstring has another."""
_ENTRY = re.compile(r"^    (\w+): ", re.MULTILINE)
Consent = Literal["model", "host", "path"]
"""What a user can consent to that a file reaches."""
_V = TypeVar("_V", bound=Callable[..., None])


def verb(
    name: str | None = None,
    *,
    of: typer.Typer = app,
    shared: Mapping[str, str] = SHARED,
    consent: Sequence[Consent] = (),
) -> Callable[[_V], _V]:
    """Add a function to the command line.

    A keyword-only parameter is an option, `--dry-run` for `dry_run`; any other is an argument. The docstring begins
    with what the verb does, has an entry of `Args` for each parameter that is not shared, and ends with an example.
    Without docstrings, as under `python -OO`, the verb has no help.

    Args:
        name: What the verb is called; by default as the function.
        of: Group of the verb.
        shared: Meanings that the verbs of the group share, besides those of all.
        consent: What the user can consent to that a file of the verb reaches; see `consenting`.
    """

    def added(function: _V) -> _V:
        text, own = entries_of(inspect.getdoc(function) or "", "Args")
        text, _, example = text.rpartition("\n\nExample: ")
        meanings = {**SHARED, **shared, **own}
        types, command = get_type_hints(function), consenting(*consent)(function)
        parameters = [*inspect.signature(command).parameters.values()]
        for index, parameter in enumerate(parameters):
            meaning = meanings.get(parameter.name)
            info: Any = typer.Argument(help=meaning)
            if parameter.kind is parameter.KEYWORD_ONLY:
                flag = FLAGS.get(parameter.name, f"--{parameter.name.replace('_', '-')}")
                info = typer.Option(flag, help=meaning)
            kind: Any = types.get(parameter.name, list[str] | None)
            parameters[index] = parameter.replace(annotation=Annotated[kind, info])
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        of.command(name, help=text, epilog=f"Example: {' '.join(example.split())}")(command)
        return function

    return added


def consenting(*kinds: Consent) -> Callable[[_V], _V]:
    """Have a verb ask for consent by options, `--allow-KIND`, before the last of its own; a plugin's verb too."""
    names = {kind: f"allow_{kind}" for kind in kinds}

    def added(function: _V) -> _V:
        @wraps(function)
        def command(*positional: Any, **arguments: Any) -> None:
            given = {kind: arguments.pop(name, None) or () for kind, name in names.items()}
            with allowed(*given.get("model", ()), hosts=given.get("host", ()), paths=given.get("path", ())):
                function(*positional, **arguments)

        signature = inspect.signature(function)
        parameters = [*signature.parameters.values()]
        parameters[-1:-1] = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in names.values()]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return cast("_V", command)

    return added


def entries_of(docstring: str, title: str) -> tuple[str, dict[str, str]]:
    r"""A docstring without one of its sections, and the entries of that section.

    >>> entries_of("Do it.\n\nArgs:\n    what: Which\n        one.\n\nExample: do", "Args")
    ('Do it.\n\nExample: do', {'what': 'Which one.'})
    """
    match = re.search(rf"\n+{title}:\n(?P<entries>(?:    .*\n?|\n)*)", docstring)
    if match is None:
        return docstring, {}
    _, *parts = _ENTRY.split(match["entries"])
    entries = {name: " ".join(entry.split()) for name, entry in zip(parts[::2], parts[1::2], strict=True)}
    return f"{docstring[: match.start()]}\n\n{docstring[match.end() :]}".strip(), entries
