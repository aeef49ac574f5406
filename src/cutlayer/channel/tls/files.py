"""The certificate files of one party: read, checked, and read again when they change."""

from __future__ import annotations

import logging
import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtensionOID

from cutlayer.channel.tls.names import identity_of
from cutlayer.errors import TrustError
from cutlayer.storage.durable import file_version

T = TypeVar("T")
_logger = logging.getLogger(__name__)
MAX_BYTES = 1 << 20
"""Maximum size of each file; a chain with its authorities has a few kilobytes."""


@dataclass(frozen=True)
class CertificateFiles:
    """Paths of a party's files, all in PEM.

    Attributes:
        ca: Certificates of the authorities that it trusts.
        cert: Its own certificate, followed by intermediate ones if there are any.
        key: Its private key, readable by its owner alone.
        crl: Revocation lists of the authorities; `None` where nothing is revoked by a list.
    """

    ca: Path
    cert: Path
    key: Path
    crl: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are read."""
        return tuple(path for path in (self.ca, self.cert, self.key, self.crl) if path is not None)


@dataclass(frozen=True)
class LoadedFiles:
    """The content of the files at one moment.

    Attributes:
        authorities: Certificates of the authorities.
        chain: Own certificate and the intermediate ones.
        key: Private key in PEM, without encryption.
        revoked: Issuer and serial number of each revoked certificate.
        lists_until: Time at which the first of the revocation lists should have been replaced; `None` without one.
    """

    authorities: tuple[x509.Certificate, ...]
    chain: tuple[x509.Certificate, ...]
    key: bytes = field(repr=False)
    revoked: frozenset[tuple[bytes, int]] = frozenset()
    lists_until: datetime | None = None

    @property
    def certificate(self) -> x509.Certificate:
        """The party's own certificate."""
        return self.chain[0]

    @property
    def authorities_pem(self) -> bytes:
        """The authorities in PEM."""
        return b"".join(map(pem_of, self.authorities))

    @property
    def chain_pem(self) -> bytes:
        """The own certificate and the intermediate ones in PEM."""
        return b"".join(map(pem_of, self.chain))

    def is_revoked(self, certificate: x509.Certificate) -> bool:
        """Whether a list names the certificate by its issuer and serial number."""
        return (certificate.issuer.public_bytes(), certificate.serial_number) in self.revoked


class Credentials:
    """The files of a party, which may be replaced while it runs.

    A replacement that is damaged or half done does not take effect: what was read before stays in use, and `problem`
    states why.

    Args:
        files: Paths of the files.
        notify: Called with a sentence when replaced files were taken over, or cannot be.

    Raises:
        TrustError: A file is missing, damaged or readable by others; the key is not of the certificate; or the
            certificate is expired, revoked or not signed by one of the authorities.
    """

    def __init__(self, files: CertificateFiles, notify: Callable[[str], None] = _logger.info) -> None:
        self.files = files
        self.problem = ""
        self._notify = notify
        self._reading = threading.Lock()
        self._seen = [*map(file_version, files.paths)]
        self._loaded = load_files(files)
        check_own(self._loaded)

    def current(self) -> LoadedFiles:
        """The content of the files; read again if one of them changed."""
        with self._reading:
            seen = [*map(file_version, self.files.paths)]
            if seen == self._seen:
                return self._loaded
            self._seen = seen
            try:
                loaded = load_files(self.files)
                check_own(loaded)
            except TrustError as problem:
                self.problem = str(problem)
                self._notify(f"replaced certificate files are not used: {problem}")
            else:
                self.problem = ""
                if loaded.revoked != self._loaded.revoked:
                    self._notify(f"the revocation list was replaced; certificates on it: {len(loaded.revoked)}")
                if (loaded.authorities, loaded.chain, loaded.key) != (
                    self._loaded.authorities,
                    self._loaded.chain,
                    self._loaded.key,
                ):
                    until = f"{loaded.certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
                    self._notify(f"certificate files were replaced; this party's certificate is valid until {until}")
                self._loaded = loaded
            return self._loaded


def load_files(files: CertificateFiles) -> LoadedFiles:
    """Read a party's files; what is in them is checked one file at a time.

    Raises:
        TrustError: A file is missing, no PEM of its kind, or the key is readable by others or of another certificate.
    """
    authorities = tuple(_parse(files.ca, x509.load_pem_x509_certificates, "certificates"))
    chain = tuple(_parse(files.cert, x509.load_pem_x509_certificates, "a certificate"))
    raw = _read(files.key)
    _check_private(files.key)
    key = _parse(files.key, lambda data: serialization.load_pem_private_key(data, None), "a private key")
    if key.public_key() != chain[0].public_key():
        raise TrustError.expected(f"the private key of {files.cert} in {files.key}", "another key", "renew, or restore")
    revoked, until = _revocations(files.crl, authorities) if files.crl else (frozenset(), None)
    return LoadedFiles(authorities, chain, raw, revoked, until)


def check_own(loaded: LoadedFiles, now: datetime | None = None) -> None:
    """Check a party's own certificate as its peers will.

    Raises:
        TrustError: It is expired, not yet valid, revoked, signed by an unknown authority, or has no identity.
    """
    identity_of(loaded.certificate)
    reason = validity_fault(loaded.certificate, now) or ("revoked" if loaded.is_revoked(loaded.certificate) else "")
    if reason:
        shown = f"{now or datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        remedy = f"ask the party with the authority for cutlayer keys renew, unless the clock here, {shown}, is wrong"
        if reason == "revoked":
            remedy = "ask for a new invitation, and remove this party's key before cutlayer keys request"
        raise TrustError.expected("a valid certificate of this party", f"one that is {reason}", remedy)
    if not is_signed_by(loaded.chain, loaded.authorities):
        got = "self-signed" if _is_issued_by(loaded.certificate, loaded.chain[:1]) else "signed by another authority"
        wanted = "this party's certificate to be signed by an authority of the file ca"
        raise TrustError.expected(wanted, f"one that is {got}", "see keys sign")


def validity_fault(certificate: x509.Certificate, now: datetime | None = None) -> str:
    """Why a certificate is not valid at a time, now by default; empty if it is."""
    moment = now or datetime.now(UTC)
    if moment < certificate.not_valid_before_utc:
        return f"not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    if moment > certificate.not_valid_after_utc:
        return f"expired since {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    return ""


def is_signed_by(chain: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]) -> bool:
    """Whether each certificate is signed by the next one, which may sign others, and the last by an authority."""
    linked = all(_may_sign(issuer) and _is_issued_by(certificate, (issuer,)) for certificate, issuer in pairwise(chain))
    return linked and (chain[-1] in authorities or _is_issued_by(chain[-1], authorities))


def pem_of(certificate: x509.Certificate) -> bytes:
    """A certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _may_sign(certificate: x509.Certificate) -> bool:
    """Whether a certificate is of an authority: a party could otherwise certify any name with its own."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound as missing:
        if missing.oid != ExtensionOID.KEY_USAGE:
            return False
        return bool(constraints.ca)
    except ValueError:
        return False
    return bool(constraints.ca and usage.key_cert_sign)


def _is_issued_by(certificate: x509.Certificate, issuers: Sequence[x509.Certificate]) -> bool:
    for issuer in issuers:
        try:
            certificate.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return True
    return False


def _revocations(
    path: Path, authorities: Sequence[x509.Certificate]
) -> tuple[frozenset[tuple[bytes, int]], datetime | None]:
    """Issuer and serial number of each revoked certificate, from lists that an authority signed."""
    mark = b"-----END X509 CRL-----"
    blocks = [block + mark for block in _read(path).split(mark) if block.strip()]
    if not blocks:
        raise TrustError.expected(f"revocation lists in {path}", "an empty file", "restore it from the authority")
    revoked = set()
    until = []
    for block in blocks:
        listed = _parse(path, x509.load_pem_x509_crl, "a revocation list", block)
        issuers = [authority for authority in authorities if authority.subject == listed.issuer]
        if not any(listed.is_signature_valid(authority.public_key()) for authority in issuers):  # type: ignore[arg-type]
            raise TrustError.expected(f"a list in {path} that one of the authorities signed", "another signature")
        revoked |= {(listed.issuer.public_bytes(), entry.serial_number) for entry in listed}
        until += [listed.next_update_utc] if listed.next_update_utc else []
    return frozenset(revoked), min(until, default=None)


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise TrustError.expected(f"a file at {path}", "a folder, a device or a pipe, whose reading need not end")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as failure:
        raise TrustError(f"{path} cannot be read: {failure.strerror}; cutlayer keys makes it") from None
    if len(content) > MAX_BYTES:
        raise TrustError.expected(f"at most {MAX_BYTES:,} bytes in {path}", "more", "is it the right file?")
    return content


def _check_private(path: Path) -> None:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        quoted = shlex.quote(str(path))
        remedy = f"run chmod 600 {quoted}, and replace the key if other people use this machine"
        raise TrustError.expected(f"a key that only its owner can read at {path}", f"mode {mode:04o}", remedy)


def _parse(path: Path, read: Callable[[bytes], T], what: str, data: bytes | None = None) -> T:
    try:
        return read(_read(path) if data is None else data)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise TrustError.expected(f"{what} in PEM, without a password, in {path}", "something else") from None
