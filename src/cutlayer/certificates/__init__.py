"""Certificates of parties: names in them, the files of one party, a small authority, and the check of a peer."""

from cutlayer.certificates.files import CertificateFiles, Credentials, Loaded
from cutlayer.certificates.names import fingerprint, identity, identity_of

__all__ = ["CertificateFiles", "Credentials", "Loaded", "fingerprint", "identity", "identity_of"]
