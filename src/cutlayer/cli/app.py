"""The command line's frame: exit codes, `--json`, and errors without tracebacks."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Annotated, Any

import typer
from click import ClickException
from click.exceptions import Abort, Exit
from rich.console import Console
from rich.text import Text

from cutlayer.errors import CutlayerError

INTERRUPTED = 130
INTERNAL = 70

app = typer.Typer(
    name="cutlayer",
    help="Vertical federated learning that measures what leaks at the cut layer, and stops it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else, on standard output.")]
errors = Console(stderr=True)


def emit(value: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def main() -> None:
    """Run the command line; every failure becomes one message and an exit code.

    Exit codes: 0 good, 1 a gate failed or a protection was not applied, 2 bad input, 3 a peer was lost, 70 a fault of
    this program, 130 interrupted.
    """
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    try:
        code = app(arguments, standalone_mode=False)
        return int(code or 0)
    except Exit as wanted:
        return wanted.exit_code
    except ClickException as misuse:
        return _report(misuse.format_message(), 2, as_json, hint="see cutlayer --help")
    except CutlayerError as failure:
        return _report(str(failure), failure.exit_code, as_json)
    except (KeyboardInterrupt, Abort):
        return _report("interrupted; the last committed epoch stands, --resume continues from it", INTERRUPTED, as_json)
    except Exception as fault:  # the last line of defence: no traceback reaches a user
        if os.environ.get("CUTLAYER_DEBUG"):
            traceback.print_exc()
        told = f"a fault of cutlayer itself: {type(fault).__name__}: {fault}"
        return _report(told, INTERNAL, as_json, hint="set CUTLAYER_DEBUG=1 for the traceback, and please report it")


def _report(message: str, code: int, as_json: bool, hint: str = "") -> int:
    if as_json:
        emit({"error": message, "exit_code": code})
    else:
        text = Text.assemble(("error ", "bold red"), message, f"\n{hint}" if hint else "")
        errors.print(text, soft_wrap=True)
    return code
