"""The identity of a party: `spiffe://FEDERATION/PARTY`, or `cn:SITE` where a certificate has a common name alone."""

from __future__ import annotations

import re

SCHEME, COMMON_NAME = "spiffe://", "cn:"

_FEDERATION = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62})")
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
"""Pattern of the name of a party in an identity."""


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
    if uri.startswith(COMMON_NAME) and is_name(uri.removeprefix(COMMON_NAME)):
        return uri
    federation, slash, path = uri.removeprefix(SCHEME).partition("/")
    parts = path.split("/")
    named = uri.startswith(SCHEME) and _FEDERATION.fullmatch(federation) and slash
    if not named or len(uri) > 255 or not all(map(is_name, parts)):
        raise ValueError("an identity such as spiffe://FEDERATION/PARTY, or cn:NAME")
    return uri


def is_name(text: str) -> bool:
    """Whether a text can name a party in an identity.

    >>> is_name("site-1"), is_name("a/b")
    (True, False)
    """
    return re.fullmatch(NAME, text) is not None
