"""`cutlayer keys`: certificates for the parties of a federation, from a small authority of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cutlayer.cli import verb as verbs
from cutlayer.cli.app import app, print_result
from cutlayer.errors import ConfigError, TrustError
from cutlayer.report.rounding import printable
from cutlayer.storage.durable import check_output, make_folder, write_whole

if TYPE_CHECKING:
    from cryptography import x509

keys = typer.Typer(no_args_is_help=True, help="Make, sign, renew and revoke the certificates of parties.")
app.add_typer(keys, name="keys")

KEYS = Path("keys")
verb = partial(
    verbs.verb,
    of=keys,
    shared={
        "days": "Days that the certificate is valid. Default: 365.",
        "folder": "The folder of the certificate files.",
        "name": "The name of the party, as in the job.",
        "out": "The file of the certificate; default: NAME.pem.",
        "seen": "The fingerprint that the other side read out; another one is refused.",
    },
)


@verb()
def init(name: str, *, federation: str = "cutlayer", folder: Path = KEYS, json: bool = False) -> None:
    """Make an authority, and the key and certificate of the party that runs it.

    Args:
        federation: The name of the federation.

    Example: cutlayer keys init bank --federation credit
    """
    from cutlayer.channel.tls.authority import Authority
    from cutlayer.config.identities import federation_name, identity

    authority = Authority.create(folder, _checked(federation_name, federation), _checked_party(name))
    print_result(
        json,
        {"identity": identity(federation, name), "folder": str(folder), "authority": authority.fingerprint},
        f"authority of {federation} and certificate of {name} in {folder}",
        f"its key {folder / 'ca.key'} must not leave this machine; keep a backup of {folder} in a safe place",
    )


@verb()
def invite(name: str, *, address: str, out: Path | None = None, folder: Path = KEYS, json: bool = False) -> None:
    """Write one file for a partner: the authority's certificate, its name, and where to connect.

    Args:
        address: HOST:PORT that the party is to connect to.
        out: The file of the invitation; default: NAME.invite.

    Example: cutlayer keys invite telco --address bank.example:7070
    """
    from cutlayer.channel.address import check_fixed_port
    from cutlayer.channel.tls.authority import PUBLIC_MODE, Authority
    from cutlayer.channel.tls.files import pem_of
    from cutlayer.config.load import as_yaml

    check_fixed_port(address)
    authority, party = Authority(folder), _checked_party(name)
    path = out or Path(f"{name}.invite")
    check_output(path, own=lambda content: content.startswith(b"cutlayer: invitation\n"))
    authority.invite(party)
    entries = {
        "cutlayer": "invitation",
        "federation": authority.federation,
        "party": name,
        "address": address,
        "authority": pem_of(authority.certificate).decode(),
    }
    write_whole(path, as_yaml(entries), PUBLIC_MODE)
    line = f"send {path} to {name}, and read the fingerprint out to them:"
    print_result(json, {"file": str(path), "authority": authority.fingerprint}, line, authority.fingerprint)


@verb()
def request(invitation: Path, *, seen: str = "", folder: Path = KEYS, json: bool = False) -> None:
    """Make a private key on this machine, and a request to be signed; the key never leaves the folder.

    Args:
        invitation: The file that the authority's party sent.

    Example: cutlayer keys request telco.invite --fingerprint efb1-043a-b396-e2b8-6570-3303-3fed-8936
    """
    from cutlayer.channel.tls.authority import PUBLIC_MODE, make_request
    from cutlayer.channel.tls.files import pem_of
    from cutlayer.channel.tls.names import fingerprint, key_fingerprint

    federation, party, address, authority = _read_invitation(invitation)
    _compare(seen, fingerprint(authority), "the authority in the invitation")
    make_folder(folder)
    known = folder / "ca.pem"
    if known.exists() and known.read_bytes() != pem_of(authority):
        remedy = f"choose another --folder, or remove {folder} if no run needs it any more"
        raise TrustError(f"{folder} holds the certificate of another authority; {remedy}")
    path, signing_request = make_request(folder, federation, party)
    write_whole(known, pem_of(authority), PUBLIC_MODE)
    key = key_fingerprint(signing_request.public_key())
    print_result(
        json,
        {"file": str(path), "key": key, "authority": fingerprint(authority), "party": party, "address": address},
        _heard(seen, f"authority {fingerprint(authority)}"),
        f"send {path} back, and read this fingerprint out to them:",
        key,
        f"put the certificate that returns at {folder / f'{party}.pem'}; it is for the address {printable(address)}",
    )


@verb()
def sign(
    file: Path,
    *,
    seen: str = "",
    out: Path | None = None,
    days: int | None = None,
    folder: Path = KEYS,
    json: bool = False,
) -> None:
    """Sign the request of a party that was invited.

    Args:
        file: The partner's request.

    Example: cutlayer keys sign telco.request.pem --fingerprint beb6-9412-3e4d-9aea-78c7-ff4f-b41e-3452
    """
    from cutlayer.channel.tls.authority import Authority, read_request
    from cutlayer.channel.tls.names import key_fingerprint

    _check_file(file)
    authority, signing_request = Authority(folder), read_request(file)
    key = key_fingerprint(signing_request.public_key())
    _compare(seen, key, "the key in the request")
    path = authority.sign(signing_request, _checked_days(days), out)
    revoke = f"; if it differs, revoke {path.stem} at once"
    heard = _heard(seen, f"key {key}", revoke)
    print_result(json, {"file": str(path), "key": key}, heard, f"send {path} back; it is no secret")


@verb()
def renew(
    name: str, *, out: Path | None = None, days: int | None = None, folder: Path = KEYS, json: bool = False
) -> None:
    """Issue a new certificate for the same key; a running party takes it up without a restart.

    Example: cutlayer keys renew telco --days 90
    """
    from cutlayer.channel.tls.authority import Authority

    path = out or (folder / f"{name}.pem" if (folder / f"{name}.key").exists() else Path(f"{name}.pem"))
    Authority(folder).renew(name, _checked_days(days), path)
    lines = [f"wrote {path}; the old certificate of {name} stays valid until it expires"]
    if path.parent != folder:
        lines.append(f"send it to {name}, for the folder {KEYS} there; a running party takes it up without a restart")
    print_result(json, {"file": str(path)}, *lines)


@verb()
def revoke(name: str, *, folder: Path = KEYS, json: bool = False) -> None:
    """Revoke the certificates of a party, or the one with a serial number.

    Args:
        name: A party, or a serial number.

    Example: cutlayer keys revoke telco
    """
    from cutlayer.channel.tls.authority import Authority

    serials = Authority(folder).revoke(name)
    print_result(
        json,
        {"revoked": serials, "file": str(folder / "crl.pem")},
        f"revoked {', '.join(serials)}; a running party here takes it up without a restart",
        f"send {folder / 'crl.pem'} to all partners, for their folder {KEYS}",
        "a party that is to return needs a new key and a new invitation; a revoked certificate cannot be renewed",
    )


@verb("list")
def list_(*, folder: Path = KEYS, json: bool = False) -> None:
    """List the certificates that the authority issued.

    Example: cutlayer keys list --json
    """
    from cutlayer.channel.tls.authority import Authority

    shown = ("party", "serial", "until", "revoked")
    issued = [{key: entry[key] for key in shown} for entry in Authority(folder).certificates]
    lines = [f"{e['party']}: until {e['until']}, serial {e['serial']}{_state(e)}" for e in issued]
    print_result(json, {"certificates": issued}, *lines)


def _state(entry: Mapping[str, Any]) -> str:
    """', revoked', ', expired', or nothing for a certificate that is valid."""
    if entry["revoked"]:
        return ", revoked"
    return ", expired" if datetime.fromisoformat(entry["until"]) < datetime.now(UTC) else ""


def _read_invitation(path: Path) -> tuple[str, str, str, x509.Certificate]:
    """Federation, name of the party, address and authority of an invitation.

    Raises:
        TrustError: The file holds something else.
    """
    from cryptography import x509

    from cutlayer.channel.address import check_fixed_port
    from cutlayer.config.identities import federation_name
    from cutlayer.config.load import read_yaml
    from cutlayer.config.names import party_name
    from cutlayer.config.wording import did_you_mean

    _check_file(path)
    try:
        entries = read_yaml(path)
        if entries.get("cutlayer") != "invitation":
            raise ValueError
        authority = x509.load_pem_x509_certificate(str(entries["authority"]).encode())
        federation = federation_name(str(entries["federation"]))
        party = party_name(str(entries["party"]))
        address = str(entries["address"])
        check_fixed_port(address)
    except ConfigError as failure:
        near = "" if path.exists() else did_you_mean(path.name, [file.name for file in path.parent.glob("*.invite")])
        raise TrustError(f"{path}: {failure}{near}") from None
    except (ValueError, KeyError):
        raise TrustError.expected(f"an invitation in {path}", "something else", "see keys invite") from None
    return federation, party, address, authority


def _check_file(path: Path) -> None:
    """Refuse a pipe or a device in the place of a file that a partner sent, since reading it may never end.

    Raises:
        TrustError: It is one, or a folder.
    """
    if path.exists() and not path.is_file():
        raise TrustError.expected(f"a file at {path}", "a folder, pipe or device")


def _compare(seen: str, real: str, what: str) -> None:
    """Raise if a fingerprint that was read out is another one.

    Raises:
        TrustError: It differs.
    """
    if seen and "".join(filter(str.isalnum, seen)).lower() != real.replace("-", ""):
        raise TrustError.expected(f"{what} with the fingerprint {seen}", real, "somebody may have replaced the file")


def _heard(seen: str, real: str, remedy: str = "") -> str:
    """A line on a fingerprint: what to compare, or that `_compare` has done so."""
    if seen:
        return f"as the other side read out: {real}"
    return f"compare with what the other side reads out: {real}{remedy}"


def _checked(check: Callable[[str], str], text: str) -> str:
    """A name that fits, or an error without a traceback.

    Raises:
        ConfigError: It does not fit.
    """
    try:
        return check(text)
    except ValueError as fault:
        raise ConfigError.expected(str(fault), repr(text)) from None


def _checked_party(name: str) -> str:
    from cutlayer.config.names import party_name

    if Path(name).suffix in (".yaml", ".yml", ".invite", ".pem"):
        raise ConfigError.expected("the name of a party, as in the job", f"a file, {name}")
    return _checked(party_name, name)


def _checked_days(days: int | None) -> int:
    from cutlayer.channel.tls.authority import AUTHORITY_DAYS, CERTIFICATE_DAYS

    days = CERTIFICATE_DAYS if days is None else days
    if not 1 <= days <= AUTHORITY_DAYS:
        raise ConfigError.expected(f"--days from 1 to {AUTHORITY_DAYS:,}", days)
    return days
