"""Online serving: the section `serve` of an organisation's private file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from cutlayer.config.base import FrozenModel
from cutlayer.config.names import FilePath
from cutlayer.config.table import TableConfig

MAX_PASSES = 1_000_000
AbsentAnswer = Literal["auto", "zeros", "multi_head", "active_only"]


def _hexadecimal(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        got = "got another text; never the key itself"
        raise ValueError(f"64 hexadecimal digits, as cutlayer api-key prints them, {got}")
    return text


class CallerConfig(FrozenModel):
    """A caller of the HTTP service, who sends a key of 256 random bits.

    Attributes:
        name: Name of the caller, in the audit log and the metrics.
        sha256: SHA-256 of the key, 64 hexadecimal digits; `cutlayer api-key` draws a key and prints it. The key itself
            is stored nowhere.
        rows_per_minute: Maximum number of rows that the caller may ask for in any 60 seconds.
        max_rows: Maximum number of rows of all answers to the caller, over all restarts, as the audit logs of the
            runs that are served and of those in `runs` count them; `None` for no limit.
        admin: Whether the caller may load runs and switch versions.
        may: `predict`, or `metrics` to read the metrics and the status of the service alone, as a monitor does.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")
    sha256: Annotated[str, AfterValidator(_hexadecimal)]
    rows_per_minute: int = Field(default=60_000, ge=1)
    max_rows: int | None = Field(default=None, ge=0)
    admin: bool = False
    may: Literal["predict", "metrics"] = "predict"

    def _faults(self) -> Iterator[str]:
        if self.admin and self.may == "metrics":
            yield "admin: true of a caller with may: predict, got may: metrics"


class HttpConfig(FrozenModel):
    """The HTTP service of the active party.

    Attributes:
        address: `HOST:PORT` to listen at; port 0 takes a free one. Off the loopback it needs keys and a certificate.
        certificate: File of the certificate chain (PEM), for HTTPS.
        key: File of its private key (PEM).
        callers_ca: File of the certificate authority (PEM) whose certificates callers must present: mutual TLS.
        max_bytes: Maximum size of a request's body.
        max_rows: Maximum number of rows of a request.
        callers: The callers with a key; without any, every caller on this machine may ask.
    """

    address: str = "127.0.0.1:8080"
    certificate: FilePath | None = None
    key: FilePath | None = None
    callers_ca: FilePath | None = None
    max_bytes: int = Field(default=2**20, ge=1024, le=2**28)
    max_rows: int = Field(default=1024, ge=1, le=100_000)
    callers: tuple[CallerConfig, ...] = ()

    def _faults(self) -> Iterator[str]:
        if (self.certificate is None) != (self.key is None):
            yield "certificate and key together, got one of them"
        if self.callers_ca is not None and self.certificate is None:
            yield "certificate and key with callers_ca, got none"
        names = [caller.name for caller in self.callers]
        if len({*names}) < len(names) or len({caller.sha256 for caller in self.callers}) < len(names):
            yield "every caller and every key once, got one twice"


class ServeConfig(FrozenModel):
    """Online predictions.

    Attributes:
        address: `HOST:PORT` where the active party listens for the passive parties; by default that of the job.
        table: The rows that can be asked for, read at the start, a path alone as the party's table is; by
            default that table.
        http: The HTTP service, at the active party.
        deadline_ms: Time that a request may take, in milliseconds; a party that has not answered by then is absent.
        batch_ms: Maximum time in milliseconds that a request waits for others to be sent together.
        batch_rows: Maximum number of rows that are sent together.
        required: Passive parties without whom no answer is given.
        absent: What stands in for absent parties: `zeros`; the head of a `multi_head` model; `active_only` answers by
            the active party alone as soon as a party is absent; `auto` is `multi_head` where the model has it, else
            `zeros`.
        runs: Folder whose run folders may be loaded while serving, at the active party.
        max_ids: Maximum number of different ids that a passive party answers about for a run, over all restarts,
            whether it has them or not; `None` for no limit but that of protections whose cost is counted.
        passes: At a passive party whose protections act on embeddings: number of passes over the rows that have begun.
            Each id is sent as it was released in the latest pass that has it, whatever its columns are now; one more
            releases all ids again, from their present columns.
        sample_rows: Maximum number of served rows that the party records for `cutlayer audit --served`, of each passive
            party at the active one; 0 records none.
        telemetry: Whether the active party makes spans of requests, and its metrics, by OpenTelemetry (extra `otel`).
        metrics: `HOST:PORT` where a passive party shows its metrics (Prometheus), on the loopback; `None` for nowhere.
    """

    address: str | None = None
    table: TableConfig | None = None
    http: HttpConfig = HttpConfig()
    deadline_ms: float = Field(default=100.0, ge=1, le=60_000)
    batch_ms: float = Field(default=2.0, ge=0, le=1000)
    batch_rows: int = Field(default=2048, ge=1, le=65_536)
    required: tuple[str, ...] = ()
    absent: AbsentAnswer = "auto"
    runs: FilePath | None = None
    max_ids: int | None = Field(default=None, ge=0)
    passes: int = Field(default=1, ge=1, le=MAX_PASSES)
    sample_rows: int = Field(default=4096, ge=0, le=65_536)
    telemetry: bool = False
    metrics: str | None = None
