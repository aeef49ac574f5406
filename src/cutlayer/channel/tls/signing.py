"""Signatures of files by a party's certificate, for parties between which no connection is open."""

from __future__ import annotations

import base64

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from cutlayer.channel.tls.files import LoadedFiles, is_signed_by, validity_fault
from cutlayer.channel.tls.names import identity_of, key_fingerprint
from cutlayer.errors import TrustError

_PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
_CHANGED_REMEDY = "it was changed; ask for it again"
MAX_CERTIFICATES = 8
"""Maximum number of certificates between a signature and an authority."""


def sign(loaded: LoadedFiles, content: bytes) -> bytes:
    """A party's signature of some bytes: ECDSA or RSA-PSS with SHA-256, or Ed25519, by the kind of its key.

    Raises:
        TrustError: The key is of another kind.
    """
    key = serialization.load_pem_private_key(loaded.key, None)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(content, ec.ECDSA(hashes.SHA256()))
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(content)
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, _PADDING, hashes.SHA256())
    raise TrustError.expected("an elliptic-curve, Ed25519 or RSA key to sign with", type(key).__name__)


def check_signature(
    chain: bytes, signature: bytes, content: bytes, loaded: LoadedFiles, expected: str, where: str
) -> None:
    """Check that a party signed some bytes.

    Args:
        chain: Certificate of the signer and the intermediate ones, in PEM.
        signature: The signature.
        content: What was signed.
        loaded: Files of the party that checks: the authorities that it trusts, and the revocation lists.
        expected: Identity of the party that must have signed.
        where: Name of the file, for the message.

    Raises:
        TrustError: The signature is of other bytes, or its certificate is of another party or an unknown authority,
            out of date or revoked.
    """
    try:
        certificates = x509.load_pem_x509_certificates(chain)
        trusted = len(certificates) <= MAX_CERTIFICATES and is_signed_by(certificates, loaded.authorities)
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise TrustError.expected(f"{where}: the certificate of {expected}", "none that can be read") from None
    certificate = certificates[0]
    if not trusted:
        raise TrustError.expected(f"{where}: a certificate that an authority of the file ca signed", "another one")
    if (stated := identity_of(certificate)) != expected:
        raise TrustError.expected(f"{where}: the signature of {expected}", f"that of {stated}")
    for each in certificates:
        if reason := validity_fault(each) or ("revoked" if loaded.is_revoked(each) else ""):
            whose = stated if each is certificate else f"an authority of {stated}"
            raise TrustError(f"{where}: the certificate of {whose} is {reason}; ask for a file under a new one")
    if not _is_valid(certificate, signature, content):
        raise TrustError.expected(f"{where}: a signature of its content", "another", _CHANGED_REMEDY)


def signer_of(chain: bytes, signature: str, content: bytes, where: str) -> tuple[str, str]:
    """Identity and key of whoever signed some bytes, by its own certificate: the key's fingerprint is to be compared.

    Args:
        chain: Certificate of the signer first, in PEM; no authority is asked.
        signature: The signature in base64.
        content: What was signed.
        where: Name of the file, for the message.

    Raises:
        TrustError: The certificate cannot be read, or the signature is of other bytes.
    """
    try:
        certificate = x509.load_pem_x509_certificates(chain)[0]
        fits = _is_valid(certificate, base64.b64decode(signature, validate=True), content)
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        fits = False
    if not fits:
        raise TrustError.expected(f"a signature of the content of {where}", "another", _CHANGED_REMEDY)
    return identity_of(certificate), key_fingerprint(certificate.public_key())


def _is_valid(certificate: x509.Certificate, signature: bytes, content: bytes) -> bool:
    try:
        key = certificate.public_key()
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, content)
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, content, _PADDING, hashes.SHA256())
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True
