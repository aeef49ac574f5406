"""Lists the verbs and options of the command line on `docs/reference/cli.md` when the site is built.

It is a hook of MkDocs (`hooks` in mkdocs.yml), so that the page cannot differ from `--help`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cutlayer.cli.app import all_verbs

PAGE = "reference/cli.md"
MARKER = "<!-- verbs -->"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put the verbs in place of the marker; called by MkDocs for every page."""
    return markdown.replace(MARKER, verbs()) if page.file.src_uri == PAGE else markdown


def verbs() -> str:
    """A section for every verb, in the order of `cutlayer --help`."""
    return "\n".join(line for name, command in all_verbs().items() for line in _sections(f"cutlayer {name}", command))


def _sections(name: str, command: Any) -> Iterator[str]:
    """A verb, or the verbs of a group."""
    if hasattr(command, "commands"):
        for inner, verb in command.commands.items():
            yield from _sections(f"{name} {inner}", verb)
        return
    yield from (f"## `{name}`", "", (command.help or "").strip(), "")
    if command.epilog:
        yield from (f"`{command.epilog.removeprefix('Example: ')}`", "")
    yield from ("| argument or option | default | meaning |", "|---|---|---|")
    for option in command.params:
        yield f"| `{_named(option)}` | {_default(option)} | {(option.help or '').replace('|', chr(92) + '|')} |"
    yield ""


def _named(option: Any) -> str:
    if option.param_type_name == "argument":
        return str(option.name).upper()
    return ", ".join([*option.opts, *option.secondary_opts])


def _default(option: Any) -> str:
    """The default, where the meaning does not state it."""
    if option.required:
        return "required"
    return "" if option.default in (None, "", False, ()) or callable(option.default) else f"`{option.default}`"
