"""The contract that two parties compare before a link opens: versions, and the shared part of the job."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from cutlayer.errors import ProtocolError
from cutlayer.version import __version__

MAX_BYTES = 2**20
"""Maximum size of a contract on the wire."""
_MAX_NAMED = 8
"""Number of differing keys that a message names."""
_short_repr = reprlib.Repr()
_short_repr.maxstring = 60
_short_repr.maxother = 60
_short_repr.maxlist = 8
_short_repr.maxlevel = 3
MISSING = "nothing"


@dataclass(frozen=True)
class Contract:
    """One party's side of what is compared.

    Attributes:
        shared: Shared part of the job, as plain values; empty where a link is opened without a job.
        version: Version of this package.
    """

    shared: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__

    def encode(self, wire: int, **more: str) -> bytes:
        """The contract as bytes, with the version of the wire format and further texts."""
        text = json.dumps(self.shared, sort_keys=True)
        packed: bytes = msgpack.packb({"wire": wire, "version": self.version, "shared": text, **more})
        return packed

    def mismatch(self, other: Contract, wires: tuple[int, int], peer: str) -> str:
        """Why two parties cannot run together, from the point of view of this one; empty if they can.

        Args:
            other: The peer's contract.
            wires: Version of the wire format here and there.
            peer: Name of the peer.
        """
        if wires[0] != wires[1]:
            theirs = printable_line(other.version)
            return f"other version: cutlayer {self.version} here, {theirs} at {peer}; install the same"
        differing = list(differences(self.shared, other.shared))
        if not differing:
            return ""
        more = f" and {len(differing) - _MAX_NAMED} more" if len(differing) > _MAX_NAMED else ""
        return f"other job: {'; '.join(differing[:_MAX_NAMED])}{more} ({peer})"


def decode_contract(raw: bytes) -> tuple[Contract, int, Mapping[str, str]]:
    """Read what `Contract.encode` wrote at a peer.

    Returns:
        The contract, the version of the wire format, and the further texts.

    Raises:
        ProtocolError: It is damaged.
    """
    try:
        entries = msgpack.unpackb(raw, strict_map_key=True, max_ext_len=0)
        wire = entries.pop("wire")
        version = entries.pop("version")
        text = entries.pop("shared")
        shared = json.loads(text)
        fit = isinstance(shared, dict) and all(
            isinstance(text_field, str) for text_field in (version, *entries.values())
        )
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, msgpack.UnpackException):
        fit = False
    if not fit or type(wire) is not int:
        raise ProtocolError("expected a greeting of cutlayer, got something else")
    return Contract(shared, version), wire, entries


def differences(mine: object, theirs: object, key: str = "") -> Iterator[str]:
    """Each key whose value differs, with both values.

    >>> list(differences({"train": {"batch_size": 8192}}, {"train": {"batch_size": 4096}}))
    ['train.batch_size: 8192 here, 4096 there']
    """
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        for name in [*mine, *(name for name in theirs if name not in mine)]:
            where = f"{key}.{name}" if key else str(name)
            yield from differences(mine.get(name, MISSING), theirs.get(name, MISSING), where)
    elif mine != theirs or type(mine) is not type(theirs):
        yield f"{printable_line(key)}: {_text(mine)} here, {_text(theirs)} there"


def printable_line(text: str, most: int = 200) -> str:
    """A text of somebody else as one line that cannot steer a terminal or fill it."""
    return "".join(filter(str.isprintable, text))[:most]


def _text(value: object) -> str:
    return MISSING if value is MISSING else printable_line(_short_repr.repr(value))
