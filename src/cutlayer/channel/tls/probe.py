"""A TLS handshake of our own with a listening party: it says why a link cannot be opened, which gRPC does not.

A gRPC client whose certificate is refused sees "Socket closed" only, and cannot see the certificate of the server. So
the certificate is read and checked here first, and gRPC then accepts this one certificate and no other.
"""

from __future__ import annotations

import socket
import ssl
import time

from cryptography import x509

from cutlayer.channel.tls.files import Credentials, LoadedFiles, validity_fault
from cutlayer.channel.tls.names import identity_of
from cutlayer.errors import PeerLost, TrustError

# OpenSSL's X509_V_ERR codes.
_EXPIRED_CODE = 10
_NOT_YET_CODE = 9
_SELF_SIGNED_CODES = (18, 19)
_MAX_HANDSHAKES = 5
"""Handshakes without an answer after which the certificate counts as refused: a connection that was cut looks alike."""
_MIN_SECONDS = 0.001


def probe(host: str, port: int, credentials: Credentials, expected: str, timeout: float) -> x509.Certificate:
    """The certificate of the party that listens at an address, after all checks on both sides' certificates.

    Args:
        host: Host name or network address, without brackets.
        port: Port.
        credentials: This party's files.
        expected: Identity that the certificate must state.
        timeout: Seconds for all handshakes together.

    Raises:
        PeerLost: Nobody answers there.
        TrustError: A certificate is refused, here or there; the message says whose and why.
    """
    end = time.monotonic() + timeout
    for _ in range(_MAX_HANDSHAKES):
        loaded = credentials.current()
        left = end - time.monotonic()
        certificate, is_answered = _handshake(host, port, credentials, loaded, expected, max(left, _MIN_SECONDS))
        if is_answered:
            return certificate
        if time.monotonic() >= end:
            break
    raise TrustError(_refused_there(f"{host}:{port}", loaded))


def _handshake(
    host: str, port: int, credentials: Credentials, loaded: LoadedFiles, expected: str, timeout: float
) -> tuple[x509.Certificate, bool]:
    """The certificate that is shown, and whether the other side went on after ours."""
    context = _context(credentials, loaded)
    where = f"{host}:{port}"
    try:
        with (
            socket.create_connection((host, port), timeout) as connection,
            context.wrap_socket(connection, server_hostname=None) as secure,
        ):
            certificate = x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b"")
            check_peer(certificate, loaded, expected, where)
            # In TLS 1.3 a server judges our certificate after our side of the handshake: if it accepts, gRPC sends its
            # settings at once; if not, the connection ends.
            answer = _answer(secure)
    except ssl.SSLCertVerificationError as refusal:
        raise TrustError(f"the certificate at {where} is refused here: {_reason(refusal)}") from None
    except ssl.SSLEOFError:
        raise PeerLost(
            f"{where} closed the connection: it takes no more of them, or was started with --plaintext"
        ) from None
    except ssl.SSLError as failure:
        raise _no_tls(where, failure) from None
    except TimeoutError:
        raise PeerLost(f"{where} accepts no connection, or does not answer, within {timeout:.2g} s") from None
    except socket.gaierror as failure:
        raise PeerLost(f"the host name {host} is not known: {failure.strerror}") from None
    except OSError as failure:
        raise PeerLost(f"{where} is not reachable: {failure.strerror or failure}") from None
    except ValueError:
        raise TrustError.expected(f"an X.509 certificate at {where}", "a damaged one") from None
    return certificate, bool(answer)


def check_peer(certificate: x509.Certificate, loaded: LoadedFiles, expected: str, where: str) -> None:
    """Check a peer's certificate, whose signature was checked before.

    Args:
        certificate: Certificate that the peer showed.
        loaded: This party's files: they hold the revocation lists.
        expected: Identity that the certificate must state.
        where: Whose certificate it is, for the message.

    Raises:
        TrustError: It states another identity, is revoked, or out of date.
    """
    stated = identity_of(certificate)
    if stated != expected:
        wanted = f"the certificate of {expected}, which the job names, from {where}"
        raise TrustError.expected(wanted, f"that of {stated}", "wrong name: is it the right address, and the same job?")
    if loaded.is_revoked(certificate):
        raise TrustError(f"the certificate of {stated} (serial {certificate.serial_number:x}) is revoked")
    if reason := validity_fault(certificate):
        raise TrustError(f"the certificate of {stated} is {reason}; have it renewed there")


def _context(credentials: Credentials, loaded: LoadedFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # parties are named by identities; `check_peer` compares them
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(cadata=loaded.authorities_pem.decode())
        context.load_cert_chain(credentials.files.cert, credentials.files.key)
    except (ssl.SSLError, OSError) as failure:
        raise TrustError(f"{credentials.files.cert} and {credentials.files.key} cannot be used: {failure}") from None
    return context


def _answer(secure: ssl.SSLSocket) -> bytes:
    try:
        return secure.recv(1)
    except (ssl.SSLError, ConnectionError):
        return b""


def _reason(refusal: ssl.SSLCertVerificationError) -> str:
    if refusal.verify_code == _EXPIRED_CODE:
        return "it is expired; have it renewed there"
    if refusal.verify_code == _NOT_YET_CODE:
        return "it is not valid yet; compare the clocks of both machines"
    if refusal.verify_code in _SELF_SIGNED_CODES:
        return "it is self-signed, or its authority is not in this party's file ca"
    return f"{refusal.verify_message}; is it signed by an authority of this party's file ca?"


def _no_tls(where: str, failure: ssl.SSLError) -> TrustError:
    reason = failure.reason or str(failure)
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return TrustError.expected(f"TLS at {where}", "something else", "was it started with --plaintext?")
    return TrustError(f"the TLS handshake with {where} failed: {reason.lower().replace('_', ' ')}")


def _refused_there(where: str, loaded: LoadedFiles) -> str:
    certificate = loaded.certificate
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    return (
        f"{where} refused this party's certificate ({identity_of(certificate)}, "
        f"serial {certificate.serial_number:x}, valid until {until}): it trusts another authority, or its clock "
        "differs; compare the fingerprints of both files ca"
    )
