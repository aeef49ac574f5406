"""Startup kits as NVFlare 2.9 provisions them: RSA keys, and no name in a certificate but the site's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from cutlayer.channel.security import Security
from cutlayer.channel.tls.files import CertificateFiles, Credentials

IDENTITIES = {"bank": "cn:site-1", "telco": "cn:site-2"}
SITES = ("site-1", "site-2", "server")


def provision(base: Path) -> None:
    """The folder `startup` of each site, and that of the server with the file names of a site."""
    now = datetime.now(UTC)
    authority = rsa.generate_private_key(65537, 2048)
    issuer = _name("example_project")
    root = (
        x509.CertificateBuilder(issuer, issuer, authority.public_key(), 1, now, now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(authority, hashes.SHA256())
    )
    for number, site in enumerate(SITES):
        key = rsa.generate_private_key(65537, 2048)
        certificate = (
            x509.CertificateBuilder(issuer, _name(site), key.public_key(), number + 2, now, now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(site)]), critical=False)
            .sign(authority, hashes.SHA256())
        )
        folder = base / site / "startup"
        folder.mkdir(parents=True)
        (folder / "rootCA.pem").write_bytes(root.public_bytes(serialization.Encoding.PEM))
        (folder / "client.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.TraditionalOpenSSL
        pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        (folder / "client.key").write_bytes(pem)
        (folder / "client.key").chmod(0o600)


def security(base: Path, site: str, **identities: str) -> Security:
    """A site's certificates, and the identities that it expects."""
    startup = base / site / "startup"
    files = CertificateFiles(startup / "rootCA.pem", startup / "client.crt", startup / "client.key")
    return Security(Credentials(files), IDENTITIES | identities)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
