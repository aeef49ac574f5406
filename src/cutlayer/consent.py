"""The gate for what a file may make this process reach: modules, hosts and paths outside of the file's own folder.

A job, a run folder, an exported part or a courier file may come from a partner, and what it names would be imported,
opened or connected to with all rights of its reader. Such a file gets nothing outside of its folder unless the person
who runs the process consents, by name: on the command line, in a party's private file, or as a caller in Python.
Consent is never read from the file itself. A private file is its owner's word and passes no gate.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from cutlayer.errors import ConfigError, RunFolderError

NAME = r"[^\W\d]\w*"
"""Pattern of one Python name."""
DOTTED_NAME = rf"{NAME}(?:\.{NAME})*"
"""Pattern of the name of a module within its packages."""
_HOST = r"(?:[\w.-]+|\[[\da-f:.]+\])(?::\d+)?"


class Kind(StrEnum):
    """Kind of a resource, named as in the option that allows it."""

    MODULE = "model"
    HOST = "host"
    PATH = "path"


@dataclass(frozen=True)
class Reach:
    """Something outside of a file that the file names.

    Attributes:
        where: Dotted path of the key that names it.
        kind: Kind of what is reached.
        scope: The module, the host as `HOST` or `HOST:PORT`, or the absolute path.
        act: What the process would do with it, such as `reads /data/bank.csv`.
        host_variable: Environment variable that names the host which the credentials are for.
        credentials: Environment variables, or files below `~`, whose credentials would be sent to the host.
    """

    where: str
    kind: Kind
    scope: str
    act: str
    host_variable: str = ""
    credentials: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Allowed:
    modules: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    paths: tuple[Path, ...] = ()


_NOTHING = _Allowed()
_ALLOWED: ContextVar[_Allowed] = ContextVar("allowed", default=_NOTHING)
"""A thread that a run starts begins with none, and so refuses."""


@contextmanager
def allowed(*modules: str, hosts: Iterable[str] = (), paths: Iterable[Path | str] = ()) -> Iterator[None]:
    """Consent to what files may reach while the context is open, besides what is allowed around it.

    Args:
        modules: Dotted names; each allows the module and all modules below it.
        hosts: `HOST`, for all its ports, or `HOST:PORT`.
        paths: Files, or folders with all that is in them.

    Raises:
        ConfigError: No dotted name of a module, or no host.

    >>> with allowed("my_models"):
    ...     is_allowed("my_models.towers"), is_allowed("my_models_2")
    (True, False)
    """
    hosts = frozenset(map(str.lower, hosts))
    for what, form, names in (
        ("the name of a module, such as my_package.models", DOTTED_NAME, modules),
        ("a host as HOST or HOST:PORT", _HOST, hosts),
    ):
        if unfit := [name for name in names if not re.fullmatch(form, name)]:
            raise ConfigError.expected(what, repr(unfit[0])[:80])
    before, added = _ALLOWED.get(), tuple(Path(path).resolve() for path in paths)
    token = _ALLOWED.set(_Allowed(before.modules | {*modules}, before.hosts | hosts, before.paths + added))
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def is_allowed(module: str) -> bool:
    """Whether the module, or a package that it is in, may be imported."""
    return any(module == name or module.startswith(f"{name}.") for name in _ALLOWED.get().modules)


def is_permitted(reach: Reach, folder: Path | None) -> bool:
    """Whether a file may reach it.

    Args:
        reach: What the file names.
        folder: Folder of the file, in which every path is open to it.
    """
    given = _ALLOWED.get()
    if reach.kind is Kind.MODULE:
        return is_allowed(reach.scope)
    if reach.kind is Kind.HOST:
        return bool({reach.scope, _without_port(reach.scope)} & given.hosts)
    return any(is_in(base, reach) for base in given.paths) or (folder is not None and is_in(folder, reach))


def is_in(folder: Path, reach: Reach) -> bool:
    """Whether it is a path in a folder. Links are followed: a folder from a partner may hold one that leads out."""
    return reach.kind is Kind.PATH and Path(reach.scope).resolve().is_relative_to(folder.resolve())


def check_open(reaches: Sequence[Reach], folder: Path | None = None) -> None:
    """Refuse what lacks consent, all of it in one error; and to send credentials to a host that they are not for.

    Args:
        reaches: What a file names.
        folder: Folder of the file.

    Raises:
        ConfigError: With a line for each thing that is refused.
    """
    refused = [_refusal(reach) for reach in reaches if not is_permitted(reach, folder)]
    if problems := refused or [problem for reach in reaches if (problem := _misdirected(reach))]:
        raise ConfigError("\n".join(problems))


def check_links(folder: Path, *patterns: str) -> None:
    """Refuse links that lead out of a folder that may come from somebody else.

    Args:
        folder: The folder.
        patterns: What is looked at in it, as `Path.glob` takes it; all of it without any.

    Raises:
        ConfigError: There are some, without consent to where they lead.
    """
    links = (entry.path for entry in entries_below(folder) if entry.is_symlink())
    if patterns:
        # A link to nothing counts too, which a pattern without a star does not find.
        found = (
            path for pattern in patterns for path in (folder.glob(pattern) if "*" in pattern else [folder / pattern])
        )
        links = (str(path) for path in found if path.is_symlink())
    leads = {link: str(Path(link).resolve()) for link in links}
    check_open([Reach(link, Kind.PATH, target, f"leads to {target}") for link, target in leads.items()], folder)


MAX_TEXT, _TEXTS = 1 << 31, (".json", ".path", ".yaml", "history.jsonl")
"""Size of the largest file of a run that is read as a whole, in bytes, and the endings of these."""


def check_files(folder: Path) -> None:
    """Refuse what a folder from somebody else may hold: devices and pipes, whose reading need not end, and links.

    Raises:
        RunFolderError: A device or a pipe, or a text that is read as a whole and takes any memory, but no disk.
        ConfigError: A link that leads out of the folder, without consent.
    """
    check_links(folder)
    for entry in entries_below(folder):
        # A link to nothing is allowed, and a file that its process has just removed.
        if not (entry.is_file() or entry.is_dir()) and Path(entry.path).exists():
            got = f"a device or pipe at {entry.path}"
            raise RunFolderError.expected(f"files and folders in {folder}", got, "remove it")
        if entry.name.endswith(_TEXTS) and entry.is_file() and entry.stat().st_size > MAX_TEXT:
            raise RunFolderError.expected(f"{entry.path} of up to {MAX_TEXT >> 30} GB", "more", "remove it")


def entries_below(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Yield all in a folder and in the folders below it, but nothing of what a link leads to."""
    pending = [os.fspath(folder)]  # not by recursion: a folder of somebody else may be as deep as it likes
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)


def check_allowed(path: str, where: str) -> None:
    """Refuse a class that nobody consented to; nothing is imported.

    Args:
        path: `package.module:Class`.
        where: Dotted path of the model's section, for the message.

    Raises:
        ConfigError: There is no consent for its module.
    """
    check_open([Reach(where, Kind.MODULE, path.partition(":")[0], f"imports {path}")])


def host_of(address: str) -> str:
    """The host of an address, with its port if one is stated; `localhost` where it states none.

    >>> host_of("https://reader@mlflow.example:5000/path"), host_of("postgresql:///bank")
    ('mlflow.example:5000', 'localhost')
    """
    return urlsplit(address).netloc.rpartition("@")[2].lower() or "localhost" if "://" in address else address.lower()


def _without_port(host: str) -> str:
    return re.sub(r":\d+$", "", host)


def _refusal(reach: Reach) -> str:
    remedy = f"the file may come from somebody else; allow it by --allow-{reach.kind} {reach.scope}"
    if reach.kind is Kind.MODULE:
        remedy = (
            "a job may come from somebody else, and an import runs code: read the module, then allow it by "
            f"--allow-model {reach.scope} or, for a party, by allow_models: [{reach.scope}] in its private file"
        )
    return f"{reach.where}: {ConfigError.expected(f'consent before it {reach.act}', 'none', remedy)}"


def _misdirected(reach: Reach) -> str:
    """The error for credentials of the environment that would be sent to a host that the environment does not name."""
    present = [name for name in reach.credentials if os.environ.get(name) or _is_file(name)]
    stated = os.environ.get(reach.host_variable, "")
    named = host_of(stated)
    if not present or named in (reach.scope, _without_port(reach.scope)):
        return ""
    wanted = f"{reach.host_variable} to name {reach.scope}, where the credentials of {present[0]} would be sent"
    remedy = "set it if they are for that host, or remove them from the environment"
    return f"{reach.where}: {ConfigError.expected(wanted, stated or 'nothing', remedy)}"


def _is_file(name: str) -> bool:
    return name.startswith("~") and Path(name).expanduser().exists()
