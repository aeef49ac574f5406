"""A small certificate authority in a folder: invites parties, signs their requests, renews and revokes.

ca.key, ca.pem   the authority; only the party that runs it has the key
crl.pem          serial numbers of revoked certificates, signed
NAME.key         private key of a party, made by that party on its own machine
NAME.pem         its certificate
issued.json      record of invitations and certificates, at the authority alone
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cutlayer.channel.tls.files import CertificateFiles, load_files, pem_of
from cutlayer.channel.tls.names import HOST, fingerprint, identity_of, key_fingerprint
from cutlayer.config.identities import identity
from cutlayer.errors import TrustError
from cutlayer.storage.durable import check_output, locked, make_folder, write_whole
from cutlayer.storage.json_values import parse_json

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
LIST_DAYS = 3650
_CLOCK_SKEW = timedelta(minutes=5)
"""A certificate is valid from a little before it was made: clocks differ."""
PRIVATE_MODE, PUBLIC_MODE = 0o600, 0o644


def files_in(folder: Path, party: str) -> CertificateFiles:
    """A party's files in a folder of keys; the revocation list only if there is one."""
    crl = folder / "crl.pem"
    return CertificateFiles(
        folder / "ca.pem", folder / f"{party}.pem", folder / f"{party}.key", crl if crl.exists() else None
    )


def own_identity(folder: Path) -> str | None:
    """The identity in the certificate of the one party whose private key is in a folder of keys; `None` otherwise.

    Raises:
        TrustError: The certificate is damaged, or the key is of another one.
    """
    keys = [path for path in folder.glob("*.key") if path.stem != "ca"]
    if len(keys) != 1 or not keys[0].with_suffix(".pem").exists() or not (folder / "ca.pem").exists():
        return None
    return identity_of(load_files(files_in(folder, keys[0].stem)).certificate)


class Authority:
    """The authority of a federation, in the folder of the party that runs it.

    Args:
        folder: Folder of the files.

    Raises:
        TrustError: There is no authority, or a file of it is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
            self._record: dict[str, Any] = parse_json((folder / "issued.json").read_bytes())
        except OSError as failure:
            wanted = f"an authority in {folder}"
            got = f"{failure.filename}: {failure.strerror}"
            raise TrustError.expected(wanted, got, "only the party that ran cutlayer keys init has it") from None
        except ValueError:
            raise TrustError(f"the authority in {folder} is damaged; restore it from a backup") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TrustError.expected(f"an elliptic-curve key in {folder / 'ca.key'}", "another kind")
        self._key = key
        self.federation = str(self._record["federation"])

    @classmethod
    def create(cls, folder: Path, federation: str, party: str) -> Authority:
        """Make an authority, and the key and certificate of the party that runs it.

        Raises:
            TrustError: The folder holds an authority already.
        """
        make_folder(folder)
        with locked(folder / "keys.lock", "cutlayer keys"):
            if (folder / "ca.key").exists() or (folder / "ca.pem").exists():
                remedy = "choose another --folder; or, if no partner has a certificate of it yet, remove it and repeat"
                owner = None
                with suppress(TrustError):
                    owner = own_identity(folder)
                raise TrustError(f"{folder} holds an authority already{f', of {owner}' if owner else ''}; {remedy}")
            others = ("issued.json", "crl.pem", f"{party}.key", f"{party}.pem")
            check_output(*(folder / other for other in others), remedy="choose another --folder")
            key = ec.generate_private_key(ec.SECP256R1())
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"cutlayer authority of {federation}"[:64])])
            certificate = _authority_certificate(key, name)
            write_key(folder / "ca.key", key)
            record = {"federation": federation, "invited": {}, "issued": [], "revoked": [], "lists": 0}
            write_whole(folder / "issued.json", json.dumps(record, indent=1) + "\n")
            write_whole(folder / "ca.pem", pem_of(certificate), PUBLIC_MODE)
        authority = cls(folder)
        with authority._locked_record():
            authority._write_list()
            party_key = ec.generate_private_key(ec.SECP256R1())
            write_key(folder / f"{party}.key", party_key)
            authority._issue(party, party_key.public_key(), CERTIFICATE_DAYS, folder / f"{party}.pem")
        return authority

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the authority's certificate, which partners compare by telephone."""
        return fingerprint(self.certificate)

    @property
    def certificates(self) -> list[dict[str, Any]]:
        """The issued certificates: party, serial number in hexadecimal, end of validity, and whether it is revoked."""
        revoked = {entry["serial"] for entry in self._record["revoked"]}
        return [{**entry, "revoked": entry["serial"] in revoked} for entry in self._record["issued"]]

    def invite(self, party: str) -> None:
        """Allow a party to have a request signed."""
        with self._locked_record():
            self._record["invited"].setdefault(party, datetime.now(UTC).isoformat(timespec="seconds"))

    def sign(self, request: x509.CertificateSigningRequest, days: int, out: Path | None = None) -> Path:
        """Sign the request of an invited party.

        Args:
            request: Request, whose signature proves that its sender has the private key.
            days: Days of validity.
            out: File of the certificate; by default NAME.pem in the working directory.

        Returns:
            The file of the certificate.

        Raises:
            TrustError: The request is damaged, or of a party that was not invited, or that has a valid certificate of
                another key.
        """
        party = self._requesting_party(request)
        with self._locked_record():
            if party not in self._record["invited"]:
                invited = ", ".join(self._record["invited"]) or "nobody"
                raise TrustError.expected(f"a request of an invited party ({invited})", party, "see keys invite")
            key = key_fingerprint(request.public_key())
            if any(entry["revoked"] and entry["key"] == key for entry in self.certificates):
                remedy = f"remove {party}.key there, and request again"
                raise TrustError.expected(f"a new key of {party}", "one whose certificate was revoked", remedy)
            other_keys = [entry for entry in self._valid(party) if entry["key"] != key]
            if other_keys:
                remedy = f"if {party} lost it, run keys revoke {party} first"
                raise TrustError.expected(
                    f"no valid certificate of another key of {party}", other_keys[0]["serial"], remedy
                )
            path = out or Path(f"{party}.pem")
            self._issue(party, request.public_key(), days, path)
        return path

    def renew(self, party: str, days: int, out: Path) -> None:
        """Issue a new certificate for the key of a party's last one; the private key stays where it is.

        Raises:
            TrustError: The party has no certificate, or its last one is revoked.
        """
        entries = [entry for entry in self.certificates if entry["party"] == party]
        if not entries or entries[-1]["revoked"]:
            got = "a revoked one" if entries else "none"
            raise TrustError.expected(f"a certificate of {party} to renew", got, "sign a request of that party instead")
        key = x509.load_pem_x509_certificate(entries[-1]["pem"].encode()).public_key()
        with self._locked_record():
            self._issue(party, key, days, out)

    def revoke(self, which: str) -> list[str]:
        """Revoke all certificates of a party that are still valid, or one by its serial number.

        Args:
            which: Name of the party, or a serial number in hexadecimal.

        Returns:
            Serial numbers that were revoked, in hexadecimal.

        Raises:
            TrustError: There is none.
        """
        with self._locked_record():
            entries = self._valid(which) or [e for e in self.certificates if e["serial"] == which and not e["revoked"]]
            if not entries:
                raise TrustError.expected("a party with a valid certificate, or the serial number of one", which)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self._record["revoked"] += [{"serial": entry["serial"], "time": now} for entry in entries]
            for party in {entry["party"] for entry in entries}:
                self._record["invited"].pop(party, None)
            self._write_list()
        return [entry["serial"] for entry in entries]

    def _valid(self, party: str) -> list[dict[str, Any]]:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return [e for e in self.certificates if e["party"] == party and not e["revoked"] and e["until"] > now]

    def _requesting_party(self, request: x509.CertificateSigningRequest) -> str:
        if not request.is_signature_valid:
            raise TrustError("the request is damaged: its signature does not match its key")
        if not isinstance(request.public_key(), ec.EllipticCurvePublicKey):
            raise TrustError.expected("a request with an elliptic-curve key", "another kind of key")
        stated = identity_of(request)
        party = stated.rpartition("/")[2]
        if stated != identity(self.federation, party):
            raise TrustError.expected(f"a request for the federation {self.federation}", stated)
        return party

    def _issue(self, party: str, key: CertificatePublicKeyTypes, days: int, out: Path) -> None:
        issued = {entry["pem"].encode() for entry in self._record["issued"]}
        check_output(out, own=issued.__contains__)
        now = datetime.now(UTC)
        certificate = (
            _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)]), self.certificate.subject, key, now)
            .not_valid_after(min(now + timedelta(days=days), self.certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(names_of(self.federation, party), critical=False)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pem = pem_of(certificate)
        until = certificate.not_valid_after_utc.isoformat(timespec="seconds")
        entry = {"party": party, "serial": f"{certificate.serial_number:x}", "until": until, "pem": pem.decode()}
        self._record["issued"].append({**entry, "key": key_fingerprint(certificate.public_key())})
        self._save()  # before the certificate exists anywhere: one that is not on record could not be revoked
        write_whole(out, pem, PUBLIC_MODE)

    def _write_list(self) -> None:
        """Sign the list of all revoked serial numbers."""
        now = datetime.now(UTC)
        self._record["lists"] += 1
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now)
            .next_update(now + timedelta(days=LIST_DAYS))
            .add_extension(x509.CRLNumber(self._record["lists"]), critical=False)
        )
        for entry in self._record["revoked"]:
            revoked = x509.RevokedCertificateBuilder().serial_number(int(entry["serial"], 16))
            builder = builder.add_revoked_certificate(
                revoked.revocation_date(datetime.fromisoformat(entry["time"])).build()
            )
        signed = builder.sign(self._key, hashes.SHA256())
        write_whole(self.folder / "crl.pem", signed.public_bytes(serialization.Encoding.PEM), PUBLIC_MODE)

    @contextmanager
    def _locked_record(self) -> Iterator[None]:
        """Lock the record against other processes, read it again, and save it at the end."""
        with locked(self.folder / "keys.lock", "cutlayer keys", wait=True):
            self._record = parse_json((self.folder / "issued.json").read_bytes())
            yield
            self._save()

    def _save(self) -> None:
        write_whole(self.folder / "issued.json", json.dumps(self._record, indent=1) + "\n", PRIVATE_MODE)


def make_request(folder: Path, federation: str, party: str) -> tuple[Path, x509.CertificateSigningRequest]:
    """Make a party's private key, unless it has one, and a request for its certificate.

    Returns:
        File of the request, and the request.
    """
    make_folder(folder)
    path, out = folder / f"{party}.key", folder / f"{party}.request.pem"
    own = lambda content: content.startswith(b"-----BEGIN CERTIFICATE REQUEST-----\n")  # noqa: E731
    check_output(out, own=own, remedy="move it, or choose another --folder")
    if not path.exists():
        write_key(path, ec.generate_private_key(ec.SECP256R1()))
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TrustError.expected(f"an elliptic-curve key in {path}", "another kind")
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)]))
        .add_extension(names_of(federation, party), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_whole(out, request.public_bytes(serialization.Encoding.PEM), PUBLIC_MODE)
    return out, request


def read_request(path: Path) -> x509.CertificateSigningRequest:
    """Read a request.

    Raises:
        TrustError: The file is missing or holds something else.
    """
    try:
        return x509.load_pem_x509_csr(path.read_bytes())
    except OSError as failure:
        raise TrustError(f"{path} cannot be read: {failure.strerror}") from None
    except (ValueError, TypeError):
        raise TrustError.expected(f"a signing request in PEM in {path}", "something else", "see keys request") from None


def names_of(federation: str, party: str) -> x509.SubjectAlternativeName:
    """The names in a certificate of this authority."""
    return x509.SubjectAlternativeName(
        [x509.UniformResourceIdentifier(identity(federation, party)), x509.DNSName(HOST)]
    )


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key that only its owner can read; an existing file stays.

    Raises:
        TrustError: There is a key already.
    """
    if path.exists():
        raise TrustError(f"{path} exists already; it is not overwritten")
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    write_whole(path, pem, PRIVATE_MODE)


def _authority_certificate(key: ec.EllipticCurvePrivateKey, name: x509.Name) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        _builder(name, name, key.public_key(), now)
        .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: CertificatePublicKeyTypes, now: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - _CLOCK_SKEW)


def _usage(**wanted: bool) -> x509.KeyUsage:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: wanted.get(name, False) for name in names})
