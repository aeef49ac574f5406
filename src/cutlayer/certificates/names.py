"""The names in a certificate: a party is `spiffe://FEDERATION/PARTY` in its subject alternative names.

A certificate without such a name, as NVFlare's startup kits have, states its common name: `cn:SITE`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cutlayer.errors import TrustError

# A job states names alone: the library of certificates is loaded where there is one to read.
if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

SCHEME, COMMON_NAME = "spiffe://", "cn:"
HOST = "party.cutlayer.invalid"
"""Host name in the certificates of our authority: gRPC insists on one, and pinning makes it irrelevant."""

_FEDERATION = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62})")
_PARTY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def federation_name(name: str) -> str:
    """Return the name of a federation if it can be part of an identity.

    Raises:
        ValueError: Other characters, or too long.

    >>> federation_name("loans-2026")
    'loans-2026'
    """
    if not _FEDERATION.fullmatch(name):
        raise ValueError(
            "a federation name of a-z, digits, ., _ and -, of 1 to 63 characters, that starts with none of the signs"
        )
    return name


def identity(federation: str, party: str) -> str:
    """The identity of a party.

    >>> identity("loans", "bank")
    'spiffe://loans/bank'
    """
    return f"{SCHEME}{federation}/{party}"


def valid_identity(uri: str) -> str:
    """Return an identity if it has the form `spiffe://FEDERATION/PATH`, or `cn:NAME`.

    Raises:
        ValueError: It has another form.

    >>> valid_identity("spiffe://acme.example/fraud/scoring")
    'spiffe://acme.example/fraud/scoring'
    """
    if uri.startswith(COMMON_NAME) and _PARTY.fullmatch(uri.removeprefix(COMMON_NAME)):
        return uri
    federation, slash, path = uri.removeprefix(SCHEME).partition("/")
    parts = path.split("/")
    named = uri.startswith(SCHEME) and _FEDERATION.fullmatch(federation) and slash
    if not named or len(uri) > 255 or not all(map(_PARTY.fullmatch, parts)):
        raise ValueError("an identity such as spiffe://FEDERATION/PARTY, or cn:NAME")
    return uri


def identity_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """The identity that a certificate, or a request for one, states: its URI, or its common name where it has no URI.

    Raises:
        TrustError: It states none, or several.
    """
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    stated = _alternative_names(certificate).get_values_for_type(x509.UniformResourceIdentifier)
    uris = [uri for uri in stated if uri.startswith(SCHEME)]
    names_in_subject = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not uris and isinstance(certificate, x509.Certificate) and len(names_in_subject) == 1:
        name = str(names_in_subject[0].value)
        if _PARTY.fullmatch(name):
            return f"{COMMON_NAME}{name}"
    if len(uris) != 1:
        got = ", ".join(ascii(uri)[:100] for uri in uris) or "none"
        raise TrustError.expected(f"one URI {SCHEME}FEDERATION/PARTY among the names in the certificate", got)
    try:
        return valid_identity(uris[0])
    except ValueError:
        raise TrustError.expected(f"{SCHEME}FEDERATION/PARTY in the certificate", ascii(uris[0])[:100]) from None


def _alternative_names(certificate: x509.Certificate | x509.CertificateSigningRequest) -> x509.SubjectAlternativeName:
    """The names besides the subject; none where there are none, or their extension is damaged."""
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return x509.SubjectAlternativeName([])


def host_of(certificate: x509.Certificate) -> str:
    """A host name or network address that a certificate states, whichever is first.

    Raises:
        TrustError: It states none.
    """
    from cryptography import x509

    names = _alternative_names(certificate)
    for name in names.get_values_for_type(x509.DNSName):
        return str(name).replace("*", "party")
    for address in names.get_values_for_type(x509.IPAddress):
        return str(address)
    wanted = "a host name or address, besides the URI, among the names in the certificate"
    raise TrustError.expected(wanted, "none", "gRPC needs one; issue the certificate with any DNS name")


def fingerprint(certificate: x509.Certificate) -> str:
    """32 hexadecimal digits of a certificate's SHA-256 in groups of 4, to be read out."""
    from cryptography.hazmat.primitives import hashes

    return _grouped(certificate.fingerprint(hashes.SHA256()))


def key_fingerprint(key: CertificatePublicKeyTypes) -> str:
    """Fingerprint of a public key: that of a request and of all certificates of the key."""
    from cryptography.hazmat.primitives import hashes, serialization

    hasher = hashes.Hash(hashes.SHA256())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    hasher.update(key.public_bytes(serialization.Encoding.DER, form))
    return _grouped(hasher.finalize())


def _grouped(digest: bytes) -> str:
    text = digest.hex()[:32]
    return "-".join(text[start : start + 4] for start in range(0, 32, 4))
