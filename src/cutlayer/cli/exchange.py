"""`cutlayer exchange`: whatever a job's protocol is at, by files in a folder or TLS; a scheduler repeats it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cutlayer.cli.app import print_result
from cutlayer.cli.drift import checked_max_drift, exit_if_drifted
from cutlayer.cli.organisation import check_scores_options, load_party
from cutlayer.cli.report import EXIT_GATE_FAILED
from cutlayer.cli.verb import verb
from cutlayer.config.remote import is_address, remote_path
from cutlayer.errors import ConfigError
from cutlayer.report.rounding import printable

if TYPE_CHECKING:
    from cutlayer.jobs.exchange import WaitingForFile

EXIT_WAITING = 5
"""Exit code of a command that goes on once a file of another party is there."""
CONNECT_SECONDS = 300.0
"""Seconds that parties which connect wait for each other, by default."""
_PARCEL = re.compile(r"[^~]+~[^~]+~\d+\.cutlayer")
"""Names of files that a party writes for another one."""
_MIN_LIKENESS = 0.8
"""Likeness of names, from 0 to 1: `telco~bank~0 (1).cutlayer` has 0.91 to the name without (1)."""


@verb(consent=("model", "path"))
def exchange(
    job: Path,
    *,
    name: str,
    local: Path,
    folder: str | None = None,
    version: str | None = None,
    round_: str | None = None,
    data: Path | None = None,
    out: str | None = None,
    overwrite: bool = False,
    absent: list[str] | None = None,
    max_drift: float | None = None,
    wait: float | None = None,
    key: Path | None = None,
    plaintext: bool = False,
    json: bool = False,
) -> None:
    """Go on with a job: align, draw, release, train, predict; the same command at every party, repeated.

    Args:
        folder: A folder that all parties see, or an address of one such as s3://bucket/exchange, for the files between
            them; by default the parties connect.
        version: Name of the model's version; by default the latest that has ended, or 1. Another name trains again.
        round_: Name of a round of predictions, the same at all parties; without it the command trains alone.
        data: With --round: the table of new rows; default: the table of the private file.
        out: With --round, at the label owner: .parquet or .csv file, or URL#TABLE, of the predictions.
        absent: With --round, at the label owner: a partner to predict without; may be repeated.
        wait: Seconds to wait for each file, before the exit code says that one is missing; default: 0, and 300 where
            the parties connect.

    Example: cutlayer exchange job.yaml --as telco --local telco.yaml --folder shared --round june --data june.parquet
    """
    setup = load_party(job, name, local, plaintext=plaintext)
    from cutlayer.cli.exchange_steps import Steps, courier_of
    from cutlayer.cli.run import keys_for
    from cutlayer.consent import allowed
    from cutlayer.jobs.exchange import WaitingForFile
    from cutlayer.serving.party_drift import DriftStatistic

    limit = checked_max_drift(max_drift)
    if round_ is not None:
        check_scores_options(setup.job.active, name, out, absent)
    elif out is not None or absent or data is not None or limit is not None:
        wanted = "--data, --out, --absent and --max-drift with --round"
        raise ConfigError.expected(wanted, "one alone", "name the round")
    base, keys = setup.base, keys_for(local.parent, key)
    connects, done = folder is None, list[str]()
    store = _address(folder, plaintext=plaintext) if folder is not None and is_address(folder) else None
    files = base.with_name(f"{base.name}.files") if folder is None or store is not None else Path(folder)
    with courier_of(setup, name, files, store) if connects or store else nullcontext() as courier:
        wait = wait if wait is not None else CONNECT_SECONDS * connects
        steps = Steps(setup, name, base, files, keys, wait, courier, limit)
        expired = steps.delete_expired()
        with allowed(*setup.private.allow_models):
            try:
                document, lines = steps.train(version, done, is_goal=round_ is None, data=data)
                stopped = document["failed"]
                if round_ is not None and not stopped:
                    document, lines = steps.predict(
                        document, round_, done, data=data, out=out, overwrite=overwrite, absent=absent or (), key=key
                    )
            except WaitingForFile as waiting:
                print_waiting(waiting, as_json=json, party=name, done=done)
                raise typer.Exit(EXIT_WAITING) from None
    if stopped and round_ is not None:
        lines.append(f"{name}: nothing is predicted; cutlayer audit {document['run']} --fail-above sets another limit")
    lines = [*bring_lines(steps.written), *lines]
    lines = [*(f"deleted of {old}: what others sent, older than {setup.job.keep}" for old in expired), *lines]
    whole = {"state": "failed" if stopped else "done", "party": name, "done": done, "expired": expired, **document}
    whole |= {"written": [*map(str, steps.written)], "waiting_for": None, "next": "decide" if stopped else None}
    print_result(json, whole, *lines)
    if stopped:
        raise typer.Exit(EXIT_GATE_FAILED)
    exit_if_drifted([DriftStatistic(**row) for row in document.get("drift", ())], max_drift, "the round has ended")


def _address(folder: str, *, plaintext: bool) -> str:
    """The address of a folder of a store.

    Raises:
        ConfigError: It is none, or of a store that cannot be written to; or the files would not be signed.
    """
    try:
        address = str(remote_path(folder))
    except ValueError as wrong:
        raise ConfigError(f"--folder: expected {wrong}") from None
    if address.startswith("http"):
        raise ConfigError.expected(
            "--folder at s3://, gs:// or abfs://, or a folder", folder, "a web server takes no file"
        )
    if plaintext and not address.startswith("memory:"):
        raise ConfigError.expected("signed files in a store", "--plaintext", "make certificates: see cutlayer keys")
    return address


def _misplaced(path: Path) -> Path | None:
    """A file that may be the one that is waited for, in another folder, or as programs rename what they send."""
    above = path.parent.parent / path.name
    if above.is_file():
        return above
    files = [each for each in path.parent.glob("*cutlayer*") if not _PARCEL.fullmatch(each.name) and each.is_file()]
    near = get_close_matches(path.name, [each.name for each in files], n=1, cutoff=_MIN_LIKENESS)
    return path.parent / near[0] if near else None


def bring_lines(written: Iterable[Path]) -> list[str]:
    """A line for each file that is to be brought to another party."""
    return [f"written, to be brought to the folder of its receiver: {path}" for path in written]


def print_waiting(waiting: WaitingForFile, *, as_json: bool, **more: Any) -> None:
    """Print the files to bring to each receiver, and those to wait for."""
    lines = bring_lines(waiting.written)
    lines.append(f"waiting for {waiting.path}, of {waiting.sender}; run the same command when it is there")
    if not waiting.why and not (shared := waiting.path.parent.parent).exists():
        from cutlayer.config.wording import did_you_mean

        beside = [each.name for each in shared.absolute().parent.glob("*") if each.is_dir()]
        lines.append(f"there is no folder {printable(str(shared))} yet{did_you_mean(shared.name, beside)}")
    if (other := _misplaced(waiting.path)) is not None:
        lines.append(f"{printable(str(other))} looks like it: if so, move it to {waiting.path}")
    if waiting.why:
        lines = [f"waiting for {waiting.sender} ({waiting.path.name}): {waiting.why}; run the same command again"]
    document = {
        "state": "waiting",
        **more,
        "written": [str(path) for path in waiting.written],
        "waiting_for": str(waiting.path),
        "from": waiting.sender,
        "why": waiting.why,
        "next": "repeat" if waiting.why else "bring, then repeat",
    }
    print_result(as_json, document, *lines)
