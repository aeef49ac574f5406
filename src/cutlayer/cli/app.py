"""The command line's frame: exit codes, `--json`, and errors without tracebacks."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from itertools import pairwise
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from cutlayer.cli.plain_text import spell_out
from cutlayer.cli.signals import Received, stopped_by_signals
from cutlayer.errors import ConfigError, CutlayerError, Interrupted
from cutlayer.report.rounding import printable

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_INTERNAL = 70
MAX_MESSAGE = 20_000
"""Maximum length of an error, in characters."""
FREE_SPACE_REMEDY = (
    "free space there, for example the transcript and compare folders of runs that you have reported, or give another "
    "--out; then repeat the command; run and party with --resume if the run folder holds a committed epoch"
)

WRITABLE_REMEDY = (
    "this command writes there: use a copy in a folder that can be written to; .cutlayer is next to the job unless "
    "`secret` of a party names another place"
)

_REMEDIES = {
    errno.ENOSPC: FREE_SPACE_REMEDY,
    errno.EDQUOT: FREE_SPACE_REMEDY,
    errno.EROFS: WRITABLE_REMEDY,
    errno.EACCES: "look at the permissions of the file and of its folder",
    errno.ELOOP: "it is a symbolic link, through which nothing is written; remove it",
}

_QUOTED = r"'([^']*)'"
_NUMBER = re.compile(rf"Invalid value for {_QUOTED}: Input should be a valid (integer|number)\b")
_CHOICE = re.compile(rf"Invalid value for .*: {_QUOTED} is not one of (.*)\.$")

Misuse: type[Exception] = typer.BadParameter.__mro__[1]
"""Wrong options and arguments; the class has no public name of its own in all versions of typer."""


class Verbs(TyperGroup):
    """The verbs, of which some are two words after each other."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first arguments."""
        if " ".join(args[:2]) in self.commands:
            args = [" ".join(args[:2]), *args[2:]]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Verbs, name="cutlayer", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich"
)

error_console = Console(stderr=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        from cutlayer.version import __version__

        sys.stdout.write(f"cutlayer {__version__}\n")
        raise typer.Exit


@app.callback()
def frame(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Vertical federated learning that measures what leaks at the cut layer, and stops it."""
    del version  # its callback has printed it


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def print_lines(*lines: str) -> None:
    """Print lines on standard output, each on one line however narrow the terminal is."""
    console = Console()
    for line in lines:
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


def print_result(as_json: bool, value: Any, *lines: str) -> None:
    """Print the result of a verb: one JSON document, or lines."""
    if as_json:
        print_json(value)
    else:
        print_lines(*lines)


def main() -> None:
    """Run the command line; every failure becomes one message and an exit code.

    Exit codes: 0 good, 1 a gate failed or a protection was not applied, 2 bad input, 3 a peer was lost, 4 nothing meets
    the limits, 5 a file of another party is waited for, 6 rows have drifted beyond a limit, 7 an approval is missing,
    70 a fault of this program, 129 ended by SIGHUP, 130 by Ctrl-C, 143 by SIGTERM.
    """
    for stream in (sys.stdout, sys.stderr):
        spell_out(stream)
    code = _run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader is gone; without this, the interpreter fails when it closes the stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    with stopped_by_signals() as received:
        return _guarded(arguments, received)


@cache
def _command() -> Any:
    """The verbs with their options, read from the signatures once per process: it takes as long as a small check."""
    return typer.main.get_command(app)


def _add_verbs(arguments: list[str]) -> None:
    """Add the verb of an installed package that is called, and all of them to the help. None replaces one of Cutlayer.

    Raises:
        ConfigError: The verb that is called cannot be imported, or is of an extra that is not installed.
    """
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    known = _command().commands
    if name in known:
        return
    from importlib.metadata import entry_points

    from cutlayer.cli.verb import verb
    from cutlayer.config.extras import SAME_VERSION_REMEDY, VERBS, belongs_to, missing_extra_error

    for point in entry_points(group="cutlayer.verbs"):
        extra = VERBS.get(point.name)
        if point.name in known or (name and point.name != name) or (extra and not belongs_to(point, extra)):
            continue
        try:
            alone = typer.Typer(add_completion=False)
            verb(point.name, of=alone)(point.load())
            known[point.name] = typer.main.get_command(alone)
        except Exception as failure:
            if name:
                wanted = f"an importable {point.value} for the verb {name}"
                raise ConfigError.expected(wanted, failure, SAME_VERSION_REMEDY if extra else "") from None
    if name in VERBS and name not in known:
        raise missing_extra_error(VERBS[name], f"the verb {name}")


def all_verbs() -> dict[str, Any]:
    """The commands by their verbs, those of installed packages included."""
    _add_verbs([])
    commands: dict[str, Any] = _command().commands
    return commands


def _guarded(arguments: list[str], received: Received) -> int:
    as_json = "--json" in arguments
    try:
        with _printing_warnings():
            _add_verbs(arguments)
            code = int(_command()(arguments, prog_name="cutlayer", standalone_mode=False) or 0)
        return _report("interrupted", received.exit_code(code), as_json) if code == EXIT_INTERRUPTED else code
    except Misuse as misuse:
        return _misused(misuse, as_json, arguments)
    except Interrupted as interrupted:
        return _report(str(interrupted), received.exit_code(EXIT_INTERRUPTED), as_json)
    except CutlayerError as failure:
        return _report(_with_notes(str(failure), failure), failure.exit_code, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _report("interrupted", received.exit_code(EXIT_INTERRUPTED), as_json)
    except SystemExit:
        raise
    except BaseException as fault:  # the last line of defence, also of a panic in Rust: no traceback reaches a user
        return _fault(fault, as_json)


def _misused(misuse: Any, as_json: bool, arguments: list[str]) -> int:
    message = misuse.format_message().replace("Value error, ", "")
    if choice := _CHOICE.match(message):
        from cutlayer.config.wording import did_you_mean

        message = f"{message.removesuffix('.')}{did_you_mean(choice[1], re.findall(_QUOTED, choice[2]))}"
    if number := _NUMBER.match(message):
        wanted = "a whole number" if number[2] == "integer" else "a number, such as 0.25,"
        message = f"expected {wanted} for {number[1]}, got {_given(number[1], arguments)!r}"
    if not message:  # without a verb the help was shown
        return EXIT_BAD_INPUT
    command = misuse.ctx.command_path if misuse.ctx else "cutlayer"
    return _report(message, EXIT_BAD_INPUT, as_json, hint=f"see {command} --help")


def _given(option: str, arguments: list[str]) -> str:
    """What was given for an option: the next word, or what follows its equals sign."""
    for word, following in pairwise([*arguments, ""]):
        if word == option or word.startswith(f"{option}="):
            return following if word == option else word.partition("=")[2]
    return ""


def _fault(fault: BaseException, as_json: bool) -> int:
    """Report an unexpected exception: a refusal of the machine as bad input, all others as a fault of this program."""
    if os.environ.get("CUTLAYER_DEBUG"):
        traceback.print_exc()
    if isinstance(fault, OSError):
        message = ": ".join(filter(None, (str(fault.filename or ""), fault.strerror or str(fault))))
        remedy = _REMEDIES.get(fault.errno or 0)
        return _report(_with_notes(f"{message}; {remedy}" if remedy else message, fault), EXIT_BAD_INPUT, as_json)
    if isinstance(fault, MemoryError) or "allocate memory" in str(fault):
        message = _with_notes("the machine has too little memory for this job", fault)
        hint = "lower train.batch_size or the widths under model; try check first"
        return _report(message, EXIT_BAD_INPUT, as_json, hint)
    message = _with_notes(f"a fault of cutlayer itself: {type(fault).__name__}: {fault}", fault)
    return _report(message, EXIT_INTERNAL, as_json, hint="set CUTLAYER_DEBUG=1 for the traceback, and please report it")


def _with_notes(message: str, failure: BaseException) -> str:
    """A message with the notes of its exception, such as what a failed run has left to resume."""
    return "; ".join((message, *getattr(failure, "__notes__", ())))


def shortened(message: str) -> str:
    """A message of limited length: an error may repeat what a file of somebody else holds."""
    return message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}..."


def _report(message: str, code: int, as_json: bool, hint: str = "") -> int:
    message = shortened(message)
    if as_json:
        print_json({"error": message, "exit_code": code})
    else:
        _print("error", "bold red", f"{message}\n{hint}" if hint else message)
    return code


def _print(word: str, style: str, message: str) -> None:
    """Print a message on standard error: wrapped on a terminal, each sentence on one line elsewhere."""
    text = "\n".join(printable(line) for line in message.splitlines())
    error_console.print(Text.assemble((f"{word} ", style), text), soft_wrap=not error_console.is_terminal)


def print_error(text: str) -> None:
    """Print what is wrong with an answer, before the question is asked again."""
    _print("error", "bold red", text)


def print_notice(text: str) -> None:
    """Print what happens to the connections of a party on standard error, with the time."""
    _print(f"{datetime.now():%H:%M:%S}", "cyan", text)


@contextmanager
def _printing_warnings() -> Iterator[None]:
    """Show each warning once, as a sentence, where Python would name a line of this program."""
    printed: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in printed:
            printed.add(str(message))
            _print("warning", "bold yellow", str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
