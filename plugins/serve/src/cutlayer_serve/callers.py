"""Callers of the HTTP service: keys, rate limits and limits of rows."""

from __future__ import annotations

import hmac
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate

from cutlayer.config import CallerConfig

LOCAL_CALLER = CallerConfig(name="local", sha256="0" * 64, rows_per_minute=2**31, admin=True)
"""The caller where no keys are configured, which the configuration allows on the loopback alone."""
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_MINUTE = 60.0
_SLOT = 0.5
"""Seconds of requests that are counted as one, so that the counts of a minute are few."""


class CallerRefused(Exception):
    """A caller is refused.

    Attributes:
        status: HTTP status.
        wait: Seconds after which the caller may try again; 0 where that does not help.
    """

    def __init__(self, status: int, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.status = status
        self.wait = wait


@dataclass
class _Slot:
    """Rows of requests shortly after one another; all of them count until the last is a minute old."""

    first: float
    last: float = 0.0
    rows: int = 0


@dataclass
class Caller:
    """A caller with its counts.

    Attributes:
        config: The caller's section of the private file.
        rows: Number of rows of all answers so far, over all restarts.
        clock: Time in seconds, of which only differences count.
    """

    config: CallerConfig
    rows: int = 0
    clock: Callable[[], float] = time.monotonic
    _slots: deque[_Slot] = field(default_factory=deque, init=False)
    _recent: int = field(default=0, init=False)

    def take(self, rows: int) -> None:
        """Count the rows of a request, before anything is asked.

        Raises:
            Refused: The caller's rate or its total is exceeded; nothing is counted then.
        """
        config = self.config
        now = self.clock()
        if config.max_rows is not None and self.rows + rows > config.max_rows:
            left = max(0, config.max_rows - self.rows)
            raise CallerRefused(
                403, f"{config.name} may ask for {config.max_rows:,} rows in all, of which {left:,} are left"
            )
        if rows > config.rows_per_minute:
            raise CallerRefused(
                413, f"{config.name} may ask for {config.rows_per_minute:,} rows a minute, got {rows:,}"
            )
        while self._slots and now - self._slots[0].last >= _MINUTE:
            self._recent -= self._slots.popleft().rows
        if (over := self._recent + rows - config.rows_per_minute) > 0:
            ended = accumulate(slot.rows for slot in self._slots)
            slot = next(slot for slot, gone in zip(self._slots, ended, strict=True) if gone >= over)
            wait = slot.last + _MINUTE - now
            raise CallerRefused(429, f"{config.name} may ask for {config.rows_per_minute:,} rows a minute", wait)
        if not self._slots or now - self._slots[-1].first >= _SLOT:
            self._slots.append(_Slot(now))
        self._slots[-1].last = now
        self._slots[-1].rows += rows
        self._recent += rows
        self.rows += rows


class Callers:
    """All callers, found by the hash of their key.

    Args:
        configs: Sections of the private file; with none, anyone may call.
        rows: Rows of all answers to each caller before this start, by name.
    """

    def __init__(self, configs: tuple[CallerConfig, ...], rows: Mapping[str, int] | None = None) -> None:
        counts = rows or {}
        self.open = not configs
        self._callers = [Caller(config, counts.get(config.name, 0)) for config in configs or (LOCAL_CALLER,)]

    def admit(self, headers: Mapping[str, str], *, predicts: bool) -> Caller:
        """The caller of a request.

        Args:
            headers: Headers of the request.
            predicts: Whether the request needs a caller who may predict.

        Raises:
            Refused: As of `check_local` and `find`, or a caller who may read metrics alone.
        """
        self.check_local(headers.get("host", ""), headers.get("origin"))
        caller = self.find(headers.get("authorization"), headers.get("x-api-key"))
        if predicts and caller.config.may == "metrics":
            raise CallerRefused(403, f"{caller.config.name} may read /metrics and /v1/status; others need may: predict")
        return caller

    def check_local(self, host: str, origin: str | None) -> None:
        """Refuse what a browser sends for a page from elsewhere, where no key proves the caller.

        A page may send requests to this machine, and read the answers if its own name leads here.

        Args:
            host: Header `Host`.
            origin: Header `Origin`.

        Raises:
            Refused: Another name than that of the loopback, or a page of another origin.
        """
        if not self.open:
            return
        name = host.rpartition(":")[0] if re.fullmatch(r".*:\d+", host) else host
        if name not in LOOPBACK_HOSTS:
            raise CallerRefused(
                403, f"expected a request to {', '.join(LOOPBACK_HOSTS)} where no callers are configured"
            )
        if origin is not None and origin.partition("://")[2] != host:
            raise CallerRefused(403, "expected no page of another origin where no callers are configured")

    def find(self, authorization: str | None, key: str | None) -> Caller:
        """The caller of a request.

        Args:
            authorization: Header `Authorization: Bearer KEY`.
            key: Header `X-API-Key`, in its place.

        Raises:
            Refused: No key, or an unknown one.
        """
        if self.open:
            return self._callers[0]
        scheme, _, token = (authorization or "").partition(" ")
        key_text = token.strip() if scheme.lower() == "bearer" else (key or "")
        if not key_text:
            raise CallerRefused(401, "expected a key in the header Authorization: Bearer KEY, got none")
        hashed = sha256(key_text.encode(errors="replace")).hexdigest()
        match = None
        for caller in self._callers:  # all of them, whichever matches
            if hmac.compare_digest(hashed, caller.config.sha256):
                match = caller
        if match is None:
            raise CallerRefused(
                401, "expected the key of a caller in serve.http.callers, got another one; `cutlayer api-key` draws one"
            )
        return match

    def known(self, headers: Mapping[str, str]) -> Caller | None:
        """The caller of a request that is answered without a key too, with less."""
        try:
            return self.admit(headers, predicts=False)
        except CallerRefused:
            return None
