"""A folder for each organisation, and the certificates in them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cutlayer.channel.tls.authority import Authority, make_request


def issue_certificates(base: Path, federation: str, active: str, passives: Sequence[str]) -> None:
    """Certificates of all parties for two days, in the folder `keys` of each one's folder.

    The active party has the authority. The private key of a party is in its own folder alone.

    Args:
        base: Folder of the parties' folders.
        federation: Name of the federation.
        active: Name of the active party.
        passives: Names of the passive parties.
    """
    authority = Authority.create(base / active / "keys", federation, active)
    for name in passives:
        authority.invite(name)
        keys = base / name / "keys"
        _, request = make_request(keys, federation, name)
        authority.sign(request, 2, keys / f"{name}.pem")
        shutil.copy(base / active / "keys" / "ca.pem", keys)
