"""The folder of a run while it trains: made or resumed, locked, and signed or removed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.config import Job
from cutlayer.errors import PeerLost
from cutlayer.training.file_digests import (
    foreign_digests,
    set_digests_aside,
    signer_for,
    verified_digests,
    write_digests,
)
from cutlayer.training.folder import RunFolder

if TYPE_CHECKING:
    from cutlayer.channel.security import Security


@contextmanager
def training_folder(path: Path, job: Job, *, resume: bool, security: Security | None = None) -> Iterator[RunFolder]:
    """Create the folder of a job or open it to resume, lock it, and write the job into it.

    At the end of the run digests of its files are written, signed by the certificate of `security`.

    If the run fails before an epoch was saved and before a release that costs privacy, the folder is removed. After
    such a release it stays, and the error says so: without its noise key the rows would be released with new noise.
    It stays too if a part of a large alignment is done.

    Raises:
        RunFolderError: An error of `create`.
        CheckpointError: The run to resume is of another job, or had ended and its files were changed since.
    """
    created = [folder for folder in (path, *path.parents) if not folder.exists()]
    folder = RunFolder.create(path, resume=resume)
    with folder.locked("a run"):
        RunFolder.create(path, resume=resume)  # again: before the lock, another process may have created a run here
        folder.remove_leftovers()
        had_ended = folder.has_ended or folder.is_passive
        earlier = verified_digests(path) if had_ended else None
        foreign = foreign_digests(path, earlier)
        restore = set_digests_aside(path)
        try:
            folder.write_job(job)
            yield folder
            if folder.has_ended or folder.is_passive:
                signer = signer_for(earlier, security) if had_ended else security
                write_digests(path, signer, earlier, foreign)
        except BaseException as failure:
            restore()
            if _note_failure(folder, failure, had_ended=had_ended, resume=resume):
                folder.clear()
                with suppress(OSError):  # a parent folder may hold another run by now
                    for parent in created:
                        parent.rmdir()
            raise


def _note_failure(folder: RunFolder, failure: BaseException, *, had_ended: bool, resume: bool) -> bool:
    """Add to an error what the folder has of the failed run; returns whether nothing in it is needed any more."""
    path, lost = folder.path, isinstance(failure, PeerLost)
    saved, released = folder.has_checkpoint, folder.has_release
    if released and not saved:
        failure.add_note(
            f"rows were released before any epoch was saved; {path} holds their noise and privacy account: "
            "continue it with --resume, a new run would pay for both"
        )
    elif not saved and folder.has_alignment:
        failure.add_note(f"{path} holds the buckets of ids that were aligned: continue with --resume")
    elif not (resume or saved or folder.can_wait(failure)):
        if lost:
            failure.add_note(f"nothing is in {path} yet: start again, without --resume")
        return True
    elif lost and not hasattr(failure, "__notes__"):
        ended = f"this party's part in {path} has ended: only one that waits for it needs it again"
        failure.add_note(ended if had_ended else f"continue {path} with --resume, once all parties are back")
    return False
