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
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from cutlayer.consent import entries_below
from cutlayer.results.document import Document
from cutlayer.results.run_files import RunFiles

if TYPE_CHECKING:
    from cutlayer.channel.security import Security

FILES = "files.json"
_LATER = frozenset(
    {FILES, "run.lock", "report.json", "report.html", "gates.xml", "privacy_card.json", "privacy_annex.html"}
    | {"privacy_annex.md", "serving", "releases", "release_log.json", "all_runs.json", "secret.path"}
)
"""Names of files and folders that are made from the others, or written again by predictions and in another place."""


class FileDigests(Document):
    """The digests of a run's files.

    Attributes:
        files: SHA-256 of each file in hexadecimal, by its path in the folder.
        audited: Those of files that a later audit replaced.
        chain: Certificate of the party and the intermediate ones, in PEM; empty where nothing is signed.
        signature: Signature of `files`, in base64.
    """

    title: ClassVar[str] = "the digests of a run's files"

    files: Mapping[str, str]
    audited: Mapping[str, str] = {}
    chain: str = ""
    signature: str = ""

    @property
    def content(self) -> bytes:
        """The bytes that are signed."""
        return f"cutlayer files 1\0{json.dumps(dict(self.files), sort_keys=True)}".encode()


def write_digests(folder: Path, security: Security | None) -> None:
    """Record the files of a run that has ended, with what is below its folder."""
    digests = FileDigests(files={name: _digest(path) for name, path in _files(folder)})
    if security is not None:
        from cutlayer.channel.tls.signing import sign

        loaded = security.credentials.current()
        signature = base64.b64encode(sign(loaded, digests.content)).decode()
        digests = digests.model_copy(update={"chain": loaded.chain_pem.decode(), "signature": signature})
    digests.write(folder / FILES)


def note_audited(folder: Path, name: str) -> None:
    """Record a file that an audit has written again, where the folder has digests and it differs."""
    if (folder / FILES).exists():
        digests, now = FileDigests.read(folder / FILES), _digest(folder / name)
        audited = {} if digests.files.get(name) == now else {name: now}
        digests.model_copy(update={"audited": audited}).write(folder / FILES)


def compared(folder: Path, *among: str) -> RunFiles | None:
    """Compare the files of a run with their digests.

    Args:
        folder: The run folder, which may come from anybody.
        among: Patterns of the files to compare; all by default.

    Returns:
        The result; `None` without digests.

    Raises:
        RunFolderError: The file of the digests is damaged.
        TrustError: Its certificate or signature is.
    """
    if not (folder / FILES).exists():
        return None
    digests = FileDigests.read(folder / FILES)
    signer = key = ""
    if digests.signature:
        from cutlayer.channel.tls.signing import signer_of

        signer, key = signer_of(digests.chain.encode(), digests.signature, digests.content, str(folder / FILES))
    every = {**digests.files, **digests.audited}
    wanted = {name: every[name] for name in every if not among or any(fnmatchcase(name, each) for each in among)}
    # By the files that are there: a name of somebody else's may lead out of the folder.
    present = {name: path for name, path in _files(folder) if name in wanted}
    changed = tuple(sorted(name for name, path in present.items() if _digest(path) != wanted[name]))
    absent, audited = tuple(sorted(wanted.keys() - present.keys())), tuple(digests.audited)
    same = len(present) - len(changed)
    return RunFiles(same=same, changed=changed, absent=absent, audited=audited, signer=signer, key=key)


def warn_of_changes(folder: Path, *among: str) -> None:
    """Warn of files that are not as the run wrote them; the arguments are those of `compared`."""
    files = compared(folder, *among)
    for finding in files.findings if files else ():
        warnings.warn(f"{folder}: {finding.detail} ({finding.code}); {finding.remedy}", stacklevel=2)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for entry in entries_below(folder):
        path = Path(entry.path)
        name = path.relative_to(folder)
        places = {name.name, name.parts[0], *name.parts[-3:-2]}  # a party may have one of the names
        if _LATER.isdisjoint(places) and entry.is_file() and os.access(path, os.R_OK):
            yield name.as_posix(), path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
