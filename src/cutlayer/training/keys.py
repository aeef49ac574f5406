"""Keys that never leave their owner: generated once, readable by the owner alone."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.config import PrivatePart
from cutlayer.data.forgotten import ForgottenRows
from cutlayer.errors import CheckpointError, ConfigError, RunFolderError
from cutlayer.storage.durable import make_folder, sync_file, sync_folder, write_whole
from cutlayer.training.forgetting import ForgottenRuns

if TYPE_CHECKING:
    from cutlayer.parties.grade_memory import GradeMemory

KEY_BYTES = 32
_FINGERPRINT = b"cutlayer key"
_NOTE_FILE = "secret.path"


@dataclass(frozen=True)
class Keys:
    """Source of the secrets.

    Attributes:
        folder: Folder of each party's long-lived secret, unless its private part names another file.
        supplied: 32 bytes that replace every key of the run, so that noise repeats: reproducible, not private.
        simulated: Whether nothing that is released leaves this process, as in a trial of a sweep or a baseline of a
            run; releases are then counted within the run alone.
    """

    folder: Path
    supplied: bytes | None = field(default=None, repr=False)
    simulated: bool = False

    def secret_of(self, name: str, party: PrivatePart) -> Path:
        """File of a party's long-lived secret."""
        return party.secret or self.folder / f"{name}.key"

    def forgotten_rows(self, name: str, party: PrivatePart) -> ForgottenRows:
        """The rows that a party has forgotten."""
        return ForgottenRows(self.secret_of(name, party))


def load_or_make(path: Path) -> bytes:
    """Read a 32-byte key, or generate it from the operating system's randomness with mode 0600.

    Raises:
        ConfigError: The file holds something else.
    """
    if path.exists():
        return read_key(path)
    make_folder(path.parent)
    whole = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
    try:
        sync_file(whole)
        os.link(whole, path)  # whole or not at all; the first of several runs wins
    except FileExistsError:
        pass
    finally:
        whole.unlink()
    sync_folder(path.parent)  # nothing may be drawn under a key that a power failure could take away
    return read_key(path)


def read_key(path: Path) -> bytes:
    """Read a 32-byte key that only its owner can read.

    Raises:
        ConfigError: There is no such file, it holds something else, or other users may read or write it.
    """
    try:
        key = path.read_bytes()
        mode = path.stat().st_mode
    except OSError as failure:
        raise ConfigError(f"the key {path} cannot be read: {failure.strerror}") from None
    if len(key) != KEY_BYTES:
        raise ConfigError.expected(f"{KEY_BYTES} bytes of key in {path}", f"{len(key)} bytes")
    if mode & 0o077:
        remedy = f"run chmod 600 {shlex.quote(str(path))}, and replace the key if other people use this machine"
        raise ConfigError.expected(f"a key that only its owner can read at {path}", f"mode {mode & 0o777:04o}", remedy)
    return key


def label_folder(secret: Path) -> Path:
    """Folder of the memory of the labels that were drawn under a party's secret."""
    return secret.with_name(f"{secret.name}.labels")


def release_folder(secret: Path) -> Path:
    """Folder of the logs of what was released under a party's secret."""
    return secret.with_name(f"{secret.name}.releases")


def grade_memory(secret: Path) -> GradeMemory:
    """The grades that were released under a party's secret."""
    from cutlayer.parties.grade_memory import GradeMemory

    return GradeMemory(secret.with_name(f"{secret.name}.grades"))


def note_secret(run: Path, party: str, secret: Path, job: str) -> None:
    """Write into a run folder where a party's secret is: from the folder, so that both may be moved, and from the root.

    Args:
        run: Run folder.
        party: Name of the party.
        secret: File of the secret.
        job: Digest of the job, of which it is noted how often rows were forgotten before.
    """
    path, from_run = run / "checkpoint" / party / _NOTE_FILE, os.path.relpath(secret, run)
    before = _noted_lines(run, party)
    if before[:1] == [from_run]:
        return  # a resume that is refused changes nothing
    make_folder(path.parent)
    forgotten = (before[2:] or ["0"])[0] if before else ForgottenRuns(secret).count(job)
    write_whole(path, f"{from_run}\n{secret.absolute()}\n{forgotten}\n")


def _noted_lines(run: Path, party: str) -> list[str]:
    path = run / "checkpoint" / party / _NOTE_FILE
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def check_not_forgotten(run: Path, party: str, job: str) -> None:
    """Refuse a party's part of a run that is not there any more, or is a copy from before rows were forgotten.

    Args:
        run: Run folder.
        party: Name of the party.
        job: Digest of the job.

    Raises:
        RunFolderError: It is.
    """
    # A copy without the note of its secret is asked by the one that is in the folder of its job.
    usual = run.absolute().parent.parent / ".cutlayer" / f"{party}.key"
    noted = _noted_lines(run, party)
    secret = secret_of_run(run, party) if noted else usual
    remedy = "delete what is left of one that was forgotten, and run the job again"
    if not (run / "checkpoint" / party).is_dir():
        raise RunFolderError.expected(f"{party}'s part of a finished run in {run}", "none", remedy)
    if secret is not None and (noted[2:] or ["0"])[0] != str(ForgottenRuns(secret).count(job)):
        raise RunFolderError.expected(f"a run of which no row was forgotten in {run}", "a copy from before", remedy)


def secret_of_run(run: Path, party: str) -> Path | None:
    """File of the secret of a party of a run; `None` where it is not on this machine."""
    places = _noted_lines(run, party)
    found = (run / place for place in places[:2] if "\0" not in place)
    # A run folder may come from somebody else, and name any file.
    return next((each for each in found if each.is_file() and each.stat().st_size == KEY_BYTES), None)


def forgotten_rows(run: Path, party: str) -> ForgottenRows | None:
    """The rows that a party of a run has forgotten, also after it; `None` where its secret is not on this machine."""
    secret = secret_of_run(run, party)
    return None if secret is None else ForgottenRows(secret)


def noise_key_path(run: Path, party: str) -> Path:
    """Path of the noise key of a party of a run, unless a key was supplied."""
    return run / "checkpoint" / party / "noise.key"


def load_or_derive_start(run: Path, party: str, noise_key: bytes, seed: int) -> bytes:
    """The starting key of a party of a run, 32 bytes, stored in the run folder: its initial weights are drawn under it.

    It is stored although the noise key gives it, because a supplied noise key is not, and baselines trained later must
    start from the same weights.

    Args:
        run: Run folder.
        party: Name of the party.
        noise_key: The party's own key of this run's noise, 32 bytes.
        seed: Seed of the job.
    """
    from cutlayer.parties.drive.random_state import starting_key

    path = _starting_key_path(run, party)
    if not path.exists():
        make_folder(path.parent)
        write_whole(path, starting_key(noise_key, party, seed))
    return read_key(path)


def starting_keys(run: Path, parties: Iterable[str]) -> dict[str, bytes]:
    """The starting keys of some parties of a run, each 32 bytes, by name.

    Raises:
        ConfigError: One of them is not in the run folder, or is damaged.
    """
    return {party: read_key(_starting_key_path(run, party)) for party in parties}


def _starting_key_path(run: Path, party: str) -> Path:
    return run / "checkpoint" / party / "initial.key"


def check_same_keys(path: Path, keys: tuple[bytes, ...]) -> None:
    """Refuse to continue with other keys than the run began with: new keys would repeat its draws differently.

    Args:
        path: File of the fingerprint, which the first call makes; it reveals nothing of the keys.
        keys: Keys of 32 random bytes each.

    Raises:
        CheckpointError: The run was begun with other keys.
    """
    fingerprint = blake2b(b"".join(keys), digest_size=16, person=_FINGERPRINT).hexdigest()
    if not path.exists():
        make_folder(path.parent)
        write_whole(path, fingerprint + "\n")
    elif path.read_bytes().strip() != fingerprint.encode():
        wanted = f"the keys the run was begun with (fingerprint {path})"
        raise CheckpointError.expected(wanted, "others", "resume with the same --key and secret, or start a new run")
