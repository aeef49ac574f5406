"""Mutual TLS for gRPC: who a caller is, and a channel to one party and nobody else."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from cryptography import x509

from cutlayer.channel.address import split_address
from cutlayer.channel.tls.files import Credentials, LoadedFiles, pem_of, validity_fault
from cutlayer.channel.tls.names import host_of, identity_of
from cutlayer.channel.tls.probe import probe
from cutlayer.errors import TrustError

_REVOKED_REMEDY = "invite the party again (cutlayer keys invite); with a new certificate a run goes on with --resume"
_EXPIRED_REMEDY = "renew it (cutlayer keys renew); a run then goes on with --resume"
_TLS_VERSION = b"TLSv1.3"
HANDSHAKE_SECONDS = 10.0
"""Seconds that a TLS handshake may take."""


def _identity_remedy(stated: str, wanted: str) -> str:
    """What to do where a party's own certificate states another identity than the job."""
    federation, _, party = stated.removeprefix("spiffe://").partition("/")
    if party and wanted.endswith(f"/{party}"):
        return f"write federation: {federation} into the job, at all parties"
    return "compare the name of the party with the job"


@dataclass(frozen=True)
class Security:
    """The certificates of a party, and the identities of the parties that it talks to.

    Attributes:
        credentials: This party's files.
        identities: Identity by name of the party, its own included; nobody else is accepted.
    """

    credentials: Credentials
    identities: Mapping[str, str]

    def check_own(self, me: str) -> None:
        """Raise unless this party's certificate states the identity that the job has for it.

        Raises:
            TrustError: It states another one.
        """
        stated = identity_of(self.credentials.current().certificate)
        if stated != self.identities[me]:
            wanted = f"the certificate of {self.identities[me]} in {self.credentials.files.cert}"
            raise TrustError.expected(wanted, f"that of {stated}", _identity_remedy(stated, self.identities[me]))

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials of a server that requires a certificate of every caller; replaced files count at the next one."""
        loaded = self.credentials.current()
        changed = _ReplacedConfiguration(self.credentials, loaded)
        return grpc.dynamic_ssl_server_credentials(_configuration(loaded), changed, require_client_authentication=True)

    def caller_name(self, context: Any) -> str:
        """Name of the party that a call comes from, by its certificate alone.

        Args:
            context: gRPC's context of the call.

        Raises:
            TrustError: It is no party of the job, revoked, out of date, or speaks an older version of TLS.
        """
        certificate = certificate_of(context)
        self.check_still_valid(certificate)
        stated = identity_of(certificate)
        name = next((name for name, identity in self.identities.items() if identity == stated), None)
        if name is None:
            raise TrustError.expected("the certificate of a party of this job", f"that of {stated}")
        return name

    def check_still_valid(self, certificate: x509.Certificate) -> None:
        """Raise if a certificate that was accepted is now revoked or out of date.

        Raises:
            TrustError: It is.
        """
        if self.credentials.current().is_revoked(certificate):
            stated = f"{identity_of(certificate)} (serial {certificate.serial_number:x})"
            raise TrustError(f"the certificate of {stated} is revoked; {_REVOKED_REMEDY}")
        if reason := validity_fault(certificate):
            raise TrustError(f"the certificate of {identity_of(certificate)} is {reason}; {_EXPIRED_REMEDY}")

    def open_channel(
        self, address: str, peer: str, options: Sequence[tuple[str, Any]], timeout: float = HANDSHAKE_SECONDS
    ) -> tuple[grpc.Channel, x509.Certificate]:
        """A channel to a party, whose certificate is checked first; the channel accepts this one certificate alone.

        Args:
            address: Address where the party listens.
            peer: Name of the party.
            options: Options of the channel.
            timeout: Seconds for the handshake.

        Returns:
            The channel, which connects at the first call, and the certificate that the party showed.

        Raises:
            PeerLost: Nobody answers.
            TrustError: A certificate is refused, here or there.
        """
        pinned, named, certificate = self.pin_peer(address, peer, timeout)
        return grpc.secure_channel(address, pinned, [*options, *named]), certificate

    def pin_peer(
        self, address: str, peer: str, timeout: float = HANDSHAKE_SECONDS
    ) -> tuple[grpc.ChannelCredentials, Sequence[tuple[str, Any]], x509.Certificate]:
        """Check a party's certificate and return the parts of a channel to it; arguments and errors of `open_channel`.

        Returns:
            Credentials that accept this one certificate alone, further options of the channel, and the certificate.
        """
        host, port = split_address(address)
        certificate = probe(host, port, self.credentials, self.identities[peer], timeout)
        loaded = self.credentials.current()
        pinned = grpc.ssl_channel_credentials(pem_of(certificate), loaded.key, loaded.chain_pem)
        return pinned, [("grpc.ssl_target_name_override", host_of(certificate))], certificate


class _ReplacedConfiguration:
    """Returns the configuration of a server's files where they were replaced, and `None` where they are the same.

    gRPC asks at every connection, from several threads, and replaces what its handshakes use without a lock: with a
    configuration at each one, handshakes that began at the same time used memory that was freed, and strangers without
    a certificate ended the process by a segmentation fault.
    """

    def __init__(self, credentials: Credentials, used: LoadedFiles) -> None:
        self._credentials = credentials
        self._used = used
        self._lock = threading.Lock()

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            loaded = self._credentials.current()
            if _server_files(loaded) == _server_files(self._used):
                return None
            self._used = loaded
            return _configuration(loaded)


def _server_files(loaded: LoadedFiles) -> tuple[bytes, bytes, bytes]:
    """Key, chain and authorities for gRPC, which takes no revocation list: each call checks it."""
    return loaded.key, loaded.chain_pem, loaded.authorities_pem


def _configuration(loaded: LoadedFiles) -> grpc.ServerCertificateConfiguration:
    key, chain, authorities = _server_files(loaded)
    return grpc.ssl_server_certificate_configuration([(key, chain)], authorities)


def certificate_of(context: Any) -> x509.Certificate:
    """The certificate of the caller; TLS has checked its signature.

    Raises:
        TrustError: There is none, or the connection is of an older version of TLS.
    """
    stated = context.auth_context()
    encoded = next(iter(stated.get("x509_pem_cert", ())), b"")
    version = next(iter(stated.get("ssl_tls_version", (_TLS_VERSION,))), b"")
    if version != _TLS_VERSION:
        raise TrustError.expected("TLS 1.3", ascii(version))
    try:
        return x509.load_pem_x509_certificate(encoded)
    except ValueError:
        raise TrustError.expected("a certificate of the caller", "none") from None
