"""Certificates for tests: a federation, and certificates with all that a peer must notice."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cutlayer.channel.security import Security
from cutlayer.channel.tls.authority import Authority, files_in, make_request, names_of
from cutlayer.channel.tls.files import CertificateFiles, Credentials

FEDERATION = "loans"


class Federation:
    """An authority at bank, and the folders of all parties."""

    def __init__(self, base: Path, *parties: str) -> None:
        self.base = base
        self.authority = Authority.create(base / "bank", FEDERATION, "bank")
        for party in parties:
            self.add(party)
        self.identities = {party: f"spiffe://{FEDERATION}/{party}" for party in ("bank", *parties)}

    def add(self, party: str, folder: str = "") -> None:
        """Invite a party and sign its request, in a folder of its own name or another one."""
        home = self.base / (folder or party)
        self.authority.invite(party)
        _, request = make_request(home, FEDERATION, party)
        self.authority.sign(request, 30, home / f"{party}.pem")
        self.publish(home)

    def publish(self, *homes: Path) -> None:
        """Hand out the authority's certificate and the revocation list."""
        for home in homes or [path for path in self.base.iterdir() if path.is_dir() and path.name != "bank"]:
            for name in ("ca.pem", "crl.pem"):
                shutil.copy(self.base / "bank" / name, home / name)

    def files(self, party: str, folder: str = "") -> CertificateFiles:
        return files_in(self.base / (folder or party), party)

    def security(self, party: str, folder: str = "", **identities: str) -> Security:
        """A party's side; further arguments change the identity that it expects of a party."""
        return Security(Credentials(self.files(party, folder)), self.identities | identities)

    def replace(
        self,
        party: str,
        *,
        begin: timedelta = timedelta(days=-2),
        end: timedelta = timedelta(days=2),
        self_signed: bool = False,
        signer: str = "",
        stated: str = "",
    ) -> None:
        """Replace a party's certificate by one with something wrong; its key stays."""
        files = self.files(party)
        key = serialization.load_pem_private_key(files.key.read_bytes(), None)
        path = self.files(signer).key if signer else self.base / "bank" / "ca.key"
        issuer = x509.load_pem_x509_certificate(self.files(signer).cert.read_bytes()) if signer else None
        signing = serialization.load_pem_private_key(path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert isinstance(signing, ec.EllipticCurvePrivateKey)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)])
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            issuer_name=name if self_signed else (issuer or self.authority.certificate).subject,
            subject_name=name,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now + begin,
            not_valid_after=now + end,
        ).add_extension(names_of(FEDERATION, stated or party), critical=False)
        made = builder.sign(key if self_signed else signing, hashes.SHA256())
        chain = [made, issuer] if issuer else [made]
        files.cert.write_bytes(b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain))
