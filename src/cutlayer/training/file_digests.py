"""SHA-256 of a run's files, written at its end and signed by the party's certificate where it has one.

Guarantee: none on what a signature does not cover. Who can write the folder can replace unsigned digests, or remove a
signature; who signs states that it wrote the files, not that they are true.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import StringConstraints

from cutlayer.config.load import load_closed_job
from cutlayer.consent import entries_below
from cutlayer.errors import CheckpointError, CutlayerError
from cutlayer.results.document import Document
from cutlayer.results.run_files import RunFiles, named
from cutlayer.storage.durable import file_version, write_whole

if TYPE_CHECKING:
    from cutlayer.channel.security import Security

DIGESTS_FILE, AUDIT_FILE, JOB_FILE = "files.json", "audit.json", "job.yaml"
LABELS_FOLDER = "labels"
"""Folder of the run folders of further labels, each of which has digests of its own."""
_UNCOVERED_NAMES = frozenset(
    {DIGESTS_FILE, "run.lock", "report.json", "report.html", "gates.xml", "privacy_card.json", "privacy_annex.html"}
    | {"privacy_annex.md", "serving", "releases", "release_log.json", "all_runs.json", "secret.path"}
    | {".DS_Store", "Thumbs.db", "desktop.ini"}
)
"""Names of files and folders that are made from the others, or written again by predictions and in another place; and
those of file managers, which they leave in each folder that is looked at, and nothing here reads."""


class FileDigests(Document):
    """The digests of a run's files.

    Attributes:
        files: SHA-256 of each file in hexadecimal, by its path in the folder.
        audited: That of `audit.json` where a later audit replaced it, which is not signed.
        chain: Certificate of the party and the intermediate ones, in PEM; empty where nothing is signed.
        signature: Signature of `files`, in base64.
    """

    title: ClassVar[str] = "the digests of a run's files"

    files: Mapping[Annotated[str, StringConstraints(min_length=1)], str]  # else one that is no UTF-8 passes too
    audited: Mapping[str, str] = {}
    chain: str = ""
    signature: str = ""

    @property
    def content(self) -> bytes:
        """The bytes that are signed."""
        return f"cutlayer files 1\0{json.dumps(dict(self.files), sort_keys=True)}".encode()


def write_digests(
    folder: Path,
    security: Security | None,
    earlier: FileDigests | None = None,
    foreign: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Record the files of a run that has ended, with what is below its folder.

    Args:
        folder: The run folder.
        security: Whose certificate signs them; `None` for nobody's.
        earlier: Those of before, where the run had ended and was resumed. A later audit stays unsigned.
        foreign: Digests of files of before that the run had not written, by name: they are not of the run now.
    """
    digests = FileDigests(files=dict(_digests(folder).items() - foreign.items()))
    audited = None if earlier is None else earlier.audited.get(AUDIT_FILE)
    if earlier is not None and audited and digests.files.get(AUDIT_FILE) == audited:
        files = {**digests.files, AUDIT_FILE: earlier.files.get(AUDIT_FILE, "")}
        digests = FileDigests(files=files, audited=earlier.audited)
    if security is not None:
        from cutlayer.channel.tls.signing import sign

        loaded = security.credentials.current()
        signature = base64.b64encode(sign(loaded, digests.content)).decode()
        digests = digests.model_copy(update={"chain": loaded.chain_pem.decode(), "signature": signature})
    digests.write(folder / DIGESTS_FILE)


def verified_digests(folder: Path) -> FileDigests | None:
    """The digests of a run that has ended, before it is resumed, which writes and signs them anew; `None` without any.

    Raises:
        CheckpointError: A file is not as they say: by new digests it would be.
    """
    files = _compare_own_files(folder)
    if files is None:
        return None
    wrong = {"changed": files.changed, "missing": files.absent, "not of the run": files.read_foreign}
    if got := "; ".join(f"{what}: {named(names)}" for what, names in wrong.items() if names):
        wanted = f"the files of the run that ended in {folder} as its {DIGESTS_FILE} has them"
        remedy = "restore the folder from a copy, remove what is not of the run, or run the job in a new one"
        raise CheckpointError.expected(wanted, got, remedy)
    return FileDigests.read(folder / DIGESTS_FILE)


def foreign_digests(folder: Path, earlier: FileDigests | None) -> dict[str, str]:
    """Digests of the files in a folder that a run which has ended did not write, by name; none without its digests."""
    known = set() if earlier is None else {*earlier.files, *earlier.audited}
    return {} if earlier is None else {name: each for name, each in _digests(folder).items() if name not in known}


def signer_for(earlier: FileDigests | None, security: Security | None) -> Security | None:
    """Who signs the files of a run that had ended: the party whose key has signed them before, and nobody else.

    Who can write the folder could have removed the signature, or all digests, to have a changed file signed.

    Warns:
        UserWarning: Nobody signs, although there is a certificate.
    """
    if security is None:
        return None
    from cutlayer.channel.tls.names import key_fingerprint
    from cutlayer.channel.tls.signing import signer_of

    had, mine = "unsigned", key_fingerprint(security.credentials.current().certificate.public_key())
    if earlier is not None and earlier.signature:
        key = signer_of(earlier.chain.encode(), earlier.signature, earlier.content, DIGESTS_FILE)[1]
        had = "" if key == mine else f"signed by another key, {key}"
    if not had:
        return security
    warnings.warn(f"the digests of this run stay unsigned: it had ended, and they were {had}", stacklevel=2)
    return None


def set_digests_aside(folder: Path) -> Callable[[], None]:
    """Remove the digests of a run that is resumed; what is returned puts them back if no file was replaced since."""
    path = folder / DIGESTS_FILE
    if not path.exists():
        return lambda: None
    digests, before = path.read_bytes(), _versions(folder)
    path.unlink()

    def restore() -> None:
        if _versions(folder) == before:
            write_whole(path, digests)

    return restore


def _versions(folder: Path) -> dict[str, tuple[int, ...]]:
    """The version of each file; a digest of all would take as long as reading them."""
    paths = ((name, Path(entry.path)) for name, entry in _files(folder))
    return {name: file_version(path) for name, path in paths if path.is_file()}


def note_audited(folder: Path) -> None:
    """Record the audit that was written again, where the folder has digests and it differs."""
    if (folder / DIGESTS_FILE).exists():
        digests, now = FileDigests.read(folder / DIGESTS_FILE), _digest(folder / AUDIT_FILE)
        audited = {} if digests.files.get(AUDIT_FILE) == now else {AUDIT_FILE: now}
        digests.model_copy(update={"audited": audited}).write(folder / DIGESTS_FILE)


def compare_files(folder: Path, *among: str) -> RunFiles | None:
    """Compare the files of a run, and of the runs of its further labels, with their digests.

    Args:
        folder: The run folder, which may come from anybody.
        among: Patterns of the files of this run to compare; all, and those of further labels, by default.

    Returns:
        The result; `None` without digests.

    Raises:
        RunFolderError: The file of the digests is damaged.
        TrustError: Its certificate or signature is.
    """
    files = _compare_own_files(folder, *among)
    if files is not None and not among:
        none = RunFiles(same=0, absent=(DIGESTS_FILE,), signer=files.signer, key=files.key)
        places = {path.name for path in (folder / LABELS_FOLDER).glob("*") if path.is_dir()}
        for label in sorted(places):
            files = files.joined(_compare_own_files(folder / LABELS_FOLDER / label) or none, f"{LABELS_FOLDER}/{label}")
        gone = tuple(f"{LABELS_FOLDER}/{label}" for label in _further_labels(folder, files) if label not in places)
        files = files.model_copy(update={"absent": (*files.absent, *gone)})
    return files


def _further_labels(folder: Path, files: RunFiles) -> tuple[str, ...]:
    """Further labels of a run, where its job is as the run wrote it."""
    if JOB_FILE in (*files.changed, *files.absent, *files.foreign):
        return ()
    with suppress(CutlayerError):
        return tuple(
            label for party in load_closed_job(folder / JOB_FILE).parties.values() for label in party.further_labels
        )
    return ()


def _compare_own_files(folder: Path, *among: str) -> RunFiles | None:
    if not (folder / DIGESTS_FILE).exists():
        return None
    digests = FileDigests.read(folder / DIGESTS_FILE)
    signer = key = ""
    if digests.signature:
        from cutlayer.channel.tls.signing import signer_of

        signer, key = signer_of(digests.chain.encode(), digests.signature, digests.content, str(folder / DIGESTS_FILE))
    later = digests.audited.get(AUDIT_FILE)  # unsigned, so that one of another file counts for nothing
    every = {*digests.files, *([AUDIT_FILE] if later else [])}

    def is_meant(name: str) -> bool:
        return not among or any(fnmatchcase(name, each) for each in among)

    wanted = set(filter(is_meant, every))
    # By the files that are there: a name of somebody else's may lead out of the folder.
    present = _digests(folder, wanted)
    differing = {name for name, digest in present.items() if digest != digests.files.get(name)}
    audited = {AUDIT_FILE} if AUDIT_FILE in differing and present[AUDIT_FILE] == later else set()
    linked = {name for name in wanted - present.keys() if _is_reached(folder, name)}
    there = {name for name, entry in _files(folder) if not name.endswith(".lock") and entry.is_file()}
    foreign = {name.encode(errors="backslashreplace").decode() for name in filter(is_meant, there - every)}
    return RunFiles(
        same=len(present) - len(differing),
        changed=tuple(sorted(differing - audited | linked)),
        absent=tuple(sorted(wanted - present.keys() - linked)),
        foreign=tuple(sorted(foreign)),
        audited=tuple(audited),
        signer=signer,
        key=key,
    )


def warn_of_changes(folder: Path, *among: str) -> None:
    """Warn of files that are not as the run wrote them; the arguments are those of `compare_files`."""
    files = compare_files(folder, *among)
    for finding in files.findings if files else ():
        warnings.warn(f"{folder}: {finding.detail} ({finding.code}); {finding.remedy}", stacklevel=2)


def _digests(folder: Path, names: Container[str] | None = None) -> dict[str, str]:
    """The digests of the files in a folder that have one of the names; of all that a run writes where `None`."""
    found = {}
    for name, entry in _files(folder):
        with suppress(OSError, UnicodeEncodeError):  # it cannot be read or named, or was removed meanwhile
            name.encode()
            if (names is None or name in names) and entry.is_file():
                found[name] = _digest(Path(entry.path))
    return found


def _files(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What is in a folder, by its path in it; as text, since paths take as long as the digests of small files."""
    start = len(os.path.join(folder, ""))  # noqa: PTH118 (with what ends the name of a folder)
    for entry in entries_below(folder):
        name = entry.path[start:].replace(os.sep, "/")
        parts = name.split("/")
        places = {parts[-1], parts[0], *parts[-3:-2]}  # a party may have one of the names
        if _UNCOVERED_NAMES.isdisjoint(places) and parts[0] != LABELS_FOLDER:
            yield name, entry


def _is_reached(folder: Path, name: str) -> bool:
    """Whether there is a file for who opens it by its name: through a link to a folder, which is not scanned."""
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts and "\0" not in name
    return inside and os.access(folder / path, os.R_OK)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
