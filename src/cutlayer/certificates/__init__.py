"""Certificates of parties: names in them, the files of one party, a small authority, and the check of a peer."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.certificates.files import Credentials
    from cutlayer.certificates.names import fingerprint, identity, identity_of
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {"Credentials": ".files", "fingerprint": ".names", "identity": ".names", "identity_of": ".names"},
    )

__all__ = ["Credentials", "fingerprint", "identity", "identity_of"]
