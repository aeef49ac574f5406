"""Whether the files of a run folder are those that the run wrote."""

from __future__ import annotations

from cutlayer.config import FrozenModel
from cutlayer.results.finding import Finding

CHANGED = Finding(
    code="CL124",
    severity="error",
    title="a file of the run was changed",
    detail="",
    remedy="ask for the folder again; cutlayer audit computes audit.json anew, of transcripts that are as they were",
    owner="",
)


_READ = frozenset({"checkpoint", "data", "transcript"})


class RunFiles(FrozenModel):
    """The files of a run, compared with the digests that the run wrote at its end.

    Attributes:
        same: Number of files with the digest of the run.
        changed: Names of those with another one, or that a link to a folder leads to.
        absent: Names of those that are not there, or cannot be read, and of folders of further labels.
        foreign: Names of files that the run did not write.
        audited: Names of audits that a later one replaced, whose digests nobody signed; none counts in `same`.
        signer: Identity that the certificate of the signature states; empty where the digests are unsigned.
        key: Fingerprint of the key that signed.
    """

    same: int
    changed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    audited: tuple[str, ...] = ()
    signer: str = ""
    key: str = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """CL124 where a file was changed, or one is there that the run did not write and that is read with its own."""
        parts = {"not as the run wrote it": self.changed, "not written by the run": self.read_foreign}
        detail = "; ".join(f"{what}: {named(names)}" for what, names in parts.items() if names)
        return (CHANGED.model_copy(update={"detail": detail}),) if detail else ()

    @property
    def read_foreign(self) -> tuple[str, ...]:
        """Files that the run did not write in folders of which all files of a name are read, as the newest weights."""
        return tuple(name for name in self.foreign if not _READ.isdisjoint(name.split("/")[:-1]))

    def joined(self, other: RunFiles, folder: str) -> RunFiles:
        """These and those of a folder in this one; signed where one key signed both."""
        update: dict[str, object] = {"same": self.same + other.same}
        for name in ("changed", "absent", "foreign", "audited"):
            update[name] = (*getattr(self, name), *(f"{folder}/{each}" for each in getattr(other, name)))
        return self.model_copy(update=update | ({} if other.key == self.key else {"signer": "", "key": ""}))


def files_statement(files: RunFiles | None) -> str:
    """What the digests of a run show, and who could have made them."""
    if files is None:
        return "no digests: what was changed since cannot be known"
    parts = {
        "changed": files.changed,
        "missing or unreadable": files.absent,
        "not of the run": files.foreign,
        "of a later audit with an unsigned digest": files.audited,
    }
    listed = "".join(f", {named(names)} {what}" for what, names in parts.items() if names)
    by = f"digests of the run signed by {files.signer} with the key {files.key}, to be compared with that party's"
    unsigned = "digests unsigned, or not all by one key: whoever changed a file could also have changed its digest"
    return f"{files.same:,} as the run wrote them{listed}; {by if files.signer else unsigned}"


def named(names: tuple[str, ...]) -> str:
    """The first of some names, and how many there are."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{', '.join(ascii(name)[1:-1] for name in names[:3])}{more}"
