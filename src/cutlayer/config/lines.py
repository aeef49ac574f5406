"""The lines of a file that an error is about: every sentence names a key, and the file is searched for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from cutlayer.errors import ConfigError

MAX_BYTES = 100_000
"""Size of a file above which errors state no line."""
_BEGINNING = re.compile(r"(\w[\w-]*(?:\.[\w-]+)*(?: \([\w-]+\))?(?:\.[\w-]+)*): ")
"""The path at the beginning of a sentence, such as `train.epochs` or `model.bottom (telco).hidden`."""
_WITHIN = re.compile(r"(?<![\w./])[A-Za-z_][\w-]*(?:\.[\w-]+)+")
"""A path of two keys or more anywhere in a sentence."""
_OF_A_PARTY = re.compile(r"parties\.[\w-]+\.")


@contextmanager
def locating_errors(job: Path, private: Path | None = None) -> Iterator[None]:
    """Add the lines to a `ConfigError`, as `with_lines` does.

    Args:
        job: A job file.
        private: The private file of one party of the job.
    """
    try:
        yield
    except ConfigError as fault:
        fault.args = (with_lines(str(fault), job, private),)
        raise


def with_lines(error: str, job: Path, private: Path | None = None) -> str:
    """An error whose sentences about keys of a file begin with the file and the line.

    Args:
        error: One sentence or more, each on a line.
        job: A job file.
        private: The private file of one party of the job, without the keys `parties` and its name.
    """
    return "\n".join(_located(line, job, private) for line in error.splitlines())


def _located(sentence: str, job: Path, private: Path | None) -> str:
    if any(path is not None and sentence.startswith(f"{path}:") for path in (job, private)):
        return sentence
    files = ((private, _OF_A_PARTY.sub("", sentence)), (job, sentence))
    for path, searched in files:
        line = None if path is None else line_of(path, searched)
        if line is not None:
            return f"{path}:{line}: {sentence}"
    return sentence


def line_of(path: Path, sentence: str) -> int | None:
    """Number of the line that a sentence is about, from 1; `None` if it is about no key of the file.

    A key that is not in the file, such as a missing one, is looked for at the key above it.

    Args:
        path: A YAML file.
        sentence: A sentence of an error, which begins with the path of a key or has one in it.
    """
    root = _parsed(path)
    if begun := _BEGINNING.match(sentence):
        named = begun[1]
        paths = (re.sub(r" \(([\w-]+)\)", r".\1", named), re.sub(r" \([\w-]+\)", "", named))
        return max((_deepest(root, keys.split(".")) for keys in paths), key=lambda depth_and_line: depth_and_line[0])[1]
    for within in _WITHIN.findall(sentence):
        keys = within.split(".")
        depth, line = _deepest(root, keys)
        if depth == len(keys):
            return line
    return None


def _parsed(path: Path) -> Any:
    try:
        # Lines are found at 5,000 a second: a file of somebody else must not keep its reader waiting.
        return _composed(path.read_text(encoding="utf-8")) if path.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError, YAMLError, RecursionError):
        return None


@lru_cache(maxsize=4)
def _composed(text: str) -> Any:
    """Nodes of a text, with their lines: an error may have many sentences, and each looks up its own."""
    return YAML(typ="safe", pure=True).compose(text)


def _deepest(node: Any, keys: Sequence[str]) -> tuple[int, int | None]:
    """Number of keys of a path that are in the file, and the line of the last of them."""
    depth, line = 0, None
    for key in keys:
        match getattr(node, "id", None):
            case "mapping":
                pair = next((pair for pair in node.value if pair[0].value == key), None)
            case "sequence" if key.isdecimal() and int(key) < len(node.value):
                pair = (node.value[int(key)],) * 2
            case _:
                pair = None
        if pair is None:
            break
        depth += 1
        line = pair[0].start_mark.line + 1
        node = pair[1]
    return depth, line
