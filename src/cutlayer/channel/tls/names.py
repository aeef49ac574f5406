"""The names in a certificate: a party is `spiffe://FEDERATION/PARTY` in its subject alternative names.

A certificate without such a name, as NVFlare's startup kits have, states its common name: `cn:SITE`.
"""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID

from cutlayer.config.identities import COMMON_NAME, SCHEME, is_name, valid_identity
from cutlayer.errors import TrustError

HOST = "party.cutlayer.invalid"
"""Host name in the certificates of our authority: gRPC insists on one, and pinning makes it irrelevant."""


def identity_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """The identity that a certificate, or a request for one, states: its URI, or its common name where it has no URI.

    Raises:
        TrustError: It states none, or several.
    """
    stated = _alternative_names(certificate).get_values_for_type(x509.UniformResourceIdentifier)
    uris = [uri for uri in stated if uri.startswith(SCHEME)]
    names_in_subject = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not uris and isinstance(certificate, x509.Certificate) and len(names_in_subject) == 1:
        name = str(names_in_subject[0].value)
        if is_name(name):
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
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return x509.SubjectAlternativeName([])


def host_of(certificate: x509.Certificate) -> str:
    """A host name or network address that a certificate states, whichever is first.

    Raises:
        TrustError: It states none.
    """
    names = _alternative_names(certificate)
    for name in names.get_values_for_type(x509.DNSName):
        return str(name).replace("*", "party")
    for address in names.get_values_for_type(x509.IPAddress):
        return str(address)
    wanted = "a host name or address, besides the URI, among the names in the certificate"
    raise TrustError.expected(wanted, "none", "gRPC needs one; issue the certificate with any DNS name")


def fingerprint(certificate: x509.Certificate) -> str:
    """32 hexadecimal digits of a certificate's SHA-256 in groups of 4, to be read out."""
    return _grouped(certificate.fingerprint(hashes.SHA256()))


def key_fingerprint(key: CertificatePublicKeyTypes) -> str:
    """Fingerprint of a public key: that of a request and of all certificates of the key."""
    hasher = hashes.Hash(hashes.SHA256())
    hasher.update(key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
    return _grouped(hasher.finalize())


def _grouped(digest: bytes) -> str:
    text = digest.hex()[:32]
    return "-".join(text[start : start + 4] for start in range(0, 32, 4))
