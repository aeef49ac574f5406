"""`cutlayer serve`: this organisation's part of online predictions; `cutlayer api-key`: a key for a caller."""

from __future__ import annotations

import gc
import json
import secrets
import sys
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cutlayer.cli.app import print_notice, print_result
from cutlayer.cli.verb import consenting
from cutlayer.config.extras import check_extra
from cutlayer.errors import ConfigError

SWITCH_SECONDS = 0.0005
"""Time after which a thread of the service gives way to another."""


@consenting("model", "path")
def serve(
    runs: list[Path],
    *,
    name: str,
    local: Path,
    key: Path | None = None,
    plaintext: bool = False,
    json: bool = False,
) -> None:
    """Serve predictions of a trained run: over HTTP at the active party, towards it at a passive one.

    Args:
        runs: Run folders; the first answers requests, the rest can be switched to.

    Example: cutlayer serve runs/job --as bank --local bank.yaml
    """
    with suppress(KeyboardInterrupt):
        _serve(runs, name, local, key, plaintext=plaintext, as_json=json)


def _serve(runs: list[Path], name: str, local: Path, key: Path | None, *, plaintext: bool, as_json: bool) -> None:
    from cutlayer.cli.party_predict import trained_job
    from cutlayer.config.load import load_private_part, with_private_part
    from cutlayer.consent import allowed
    from cutlayer.training.keys import read_key

    private = load_private_part(local)
    supplied = read_key(key) if key else None
    from cutlayer.jobs.links import open_trail, security_of, trail_folder
    from cutlayer_serve.process import serve_active, serve_passive
    from cutlayer_serve.trained_party import TrainedParty

    with allowed(*private.allow_models):
        trained = TrainedParty.open(runs[0], name)
        security = None if plaintext else security_of(trained.job, name, private, local.parent, print_notice)
        served = private.model_copy(update={"table": private.served.table})
        now = with_private_part(trained.job, name, served)
        trained = replace(trained, job=trained_job(trained.folder, now, name))  # limits are those of the file
        trail = open_trail(now, name, trail_folder(private, name, local.parent), security, runs[0], private.serve)
        if name == trained.job.active or private.serve.metrics:
            check_extra("serve")
        if name == trained.job.active:
            if private.serve.telemetry:
                check_extra("otel", "serve.telemetry")
            run_service(serve_active(tuple(runs), name, private, _show(as_json=as_json), security, trail))
        elif len(runs) > 1:
            wanted = "one run folder at a passive party"
            raise ConfigError.expected(wanted, len(runs), "start another process for each version")
        else:
            run_service(serve_passive(trained, private, supplied, _show(as_json=as_json), security, trail))


def api_key(name: str, *, json: bool = False) -> None:
    """Draw a key for a caller of `serve`; print it once, with the section for the private file.

    Args:
        name: Name of the caller.

    Example: cutlayer api-key website
    """
    from cutlayer.config import CallerConfig, validated

    key = "cut_" + secrets.token_urlsafe(32)
    hashed = sha256(key.encode()).hexdigest()
    caller = validated(CallerConfig, {"name": name, "sha256": hashed}, "caller")
    section = f'for the private file, under serve.http.callers:\n- {{name: "{caller.name}", sha256: {hashed}}}'
    document = {"name": caller.name, "key": key, "sha256": hashed}
    print_result(json, document, f"key, for the caller alone: {key}", section)


def run_service(service: Coroutine[Any, Any, None]) -> None:
    """Run a service to its end, in a process that is set up for it: the faster event loop, where it is installed."""
    import asyncio

    # The transport's own thread hands over what arrived, and would wait 5 ms for the interpreter whenever this one is
    # busy: with 64 requests at once that was a third of the time of the slowest answers.
    sys.setswitchinterval(SWITCH_SECONDS)
    factory = import_module("uvloop").new_event_loop if find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(service)


def freeze_loaded() -> None:
    """Take all that is loaded out of the garbage collection, which otherwise walks it again and again while serving."""
    gc.collect()
    gc.freeze()


def _show(*, as_json: bool):  # type: ignore[no-untyped-def]
    def started(about: Mapping[str, str]) -> None:
        freeze_loaded()
        if as_json:
            sys.stdout.write(json.dumps(dict(about)) + "\n")
        else:
            for what, value in about.items():
                sys.stdout.write(f"{what.replace('_', ' ')}: {value}\n")
        sys.stdout.flush()

    return started
