"""A year of two organisations by files in a folder or by TLS, disturbed and undisturbed: `python -m benchmarks.year`.

A bank with labels and a telco train once, predict every month's new rows, and train again in July, each by the one
command that a scheduler would repeat. In the disturbed year every command is killed by SIGKILL at random moments, then
repeated to its end, and repeated once more. One month the telco is late, one month it does not come, and one month its
table has lost a column, which is refused, and restored. At the end both years have the same scores and ledgers.

With `--tls` both commands run at the same time, and each is killed at moments of its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256, shake_256
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from cutlayer.channel.tls.authority import Authority, make_request
from cutlayer.channel.trail import verify_trail
from cutlayer.cli.app import _command, _run
from cutlayer.protections.label_memory import memory
from cutlayer.training import keys
from tools.ports import free_port

BANK, TELCO = "bank", "telco"
LATE, ABSENT, CHANGED, AGAIN = 3, 5, 8, 7
"""Months: the telco is late, absent, its table has lost a column; and both train a second version."""
DONE, REFUSED, WAITING = 0, 2, 5
WAIT = 8
"""Seconds that a command waits for the other party, by TLS."""
MAX_MOMENT = 90
"""Writes of a command within which it is killed; a training has more, a start that waits fewer."""
JOB = """\
name: year
federation: year
task: binary
parties:
  bank: {role: active, address: "127.0.0.1:PORT"}
  telco: {role: passive}
rows: all
model:
  bottom: {bank: {kind: auto}, telco: {kind: grade, least_rows: 0}}
  top: {kind: auto, candidates: [linear]}
train: {release: once}
"""
PRIVATE = {
    BANK: "{table: train.csv, id: id, label: label, privacy: {label_dp: {eps: 2.0}}, audit: {every: never}}\n",
    TELCO: "{table: train.csv, id: id, fit: {kind: grade}, "
    "privacy: {grade_dp: {epsilon: 8.0}}, audit: {attacks: []}}\n",
}


@dataclass
class Year:
    """What happened in a year, and what it left.

    Attributes:
        kills: Commands that were killed.
        starts: Starts of the command that ended by themselves, by exit code.
        scores: Digest of each month's scores, by month.
        ledgers: Runs in each party's ledger of all runs, with their totals.
        files: Files in the shared folder, by their sender.
        seconds: Time of the year.
    """

    kills: int = 0
    starts: Counter[int] = field(default_factory=Counter)
    scores: dict[int, str] = field(default_factory=dict)
    ledgers: dict[str, Any] = field(default_factory=dict)
    files: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Organisations:
    """Two organisations and the folder between them.

    Args:
        base: Folder with one folder for each party, and `shared`.
        kills: Number of times that each command is killed before it may end.
        seed: Seed of the moments at which commands are killed.
        tls: Whether they connect; else they exchange files in a folder that both see.
    """

    def __init__(self, base: Path, kills: int, seed: int = 0, *, tls: bool = False) -> None:
        self.base, self._kills, self._random, self._tls = base, kills, random.Random(seed), tls
        self.year = Year()
        self._seen: dict[tuple[str, str], str] = {}

    def month(self, number: int, *, changed: bool = False, **options: str) -> dict[str, list[str]]:
        """The options of each party's command in a month."""
        rounds = [] if number == 0 else ["--round", f"2026-{number:02}"]
        named = [part for name, value in options.items() for part in (f"--{name}", value)]
        if not rounds:
            return {BANK: named, TELCO: named}
        data = {BANK: f"{number:02}.csv", TELCO: "changed.csv" if changed else f"{number:02}.csv"}
        both = {name: [*rounds, "--data", data[name], *named] for name in (BANK, TELCO)}
        both[BANK] += ["--out", f"{number:02}.parquet"]
        return both

    def until_done(self, options: dict[str, list[str]], *, late: int = 0) -> None:
        """Repeat both commands, one after the other, until each has said that it is done, and once more."""
        for turn in range(8 + late):
            names = (BANK,) if turn < late else (BANK, TELCO)
            codes = self.commands(names, options)
            if codes == [DONE, DONE]:
                break
        again = self.commands((BANK, TELCO), options)
        if again != [DONE, DONE]:
            raise AssertionError(f"not done after all turns, or not when repeated: {again}")

    def commands(self, names: Sequence[str], options: dict[str, list[str]]) -> list[int]:
        """The commands of some parties, each killed some times, then left to end by itself; returns the exit codes.

        By TLS they run at the same time.
        """
        if not self._tls:
            return [self.command(name, options) for name in names]
        for _ in range(2 * self._kills):
            ended = self._started(names, options, [self._random.randint(1, 2 * MAX_MOMENT) for _ in names])
            self.year.kills += sum(code == -signal.SIGKILL for code, _ in ended)
        return self._ended(self._started(names, options, [None for _ in names]))

    def command(self, name: str, options: dict[str, list[str]]) -> int:
        """One party's command: killed some times, then left to end by itself; returns its exit code."""
        for _ in range(self._kills):
            [(code, _)] = self._started([name], options, [self._random.randint(1, MAX_MOMENT)])
            if code != -signal.SIGKILL:  # it ended before that moment
                break
            self.year.kills += 1
        return self._ended(self._started([name], options, [None]))[0]

    def _ended(self, ended: Sequence[tuple[int, str]]) -> list[int]:
        """Exit codes of commands that were left to end by themselves."""
        for code, said in ended:
            self.year.starts[code] += 1
            if code not in (DONE, WAITING):
                raise Refused(code, said)
        return [code for code, _ in ended]

    def arguments(self, name: str, options: Sequence[str]) -> list[str]:
        """The whole command of a party."""
        between = ["--wait", str(WAIT)] if self._tls else ["--folder", "../shared"]
        return ["exchange", "../job.yaml", "--as", name, "--local", "party.yaml", *between, *options, "--json"]

    def _started(
        self, names: Sequence[str], options: dict[str, list[str]], moments: Sequence[int | None]
    ) -> list[tuple[int, str]]:
        """Start commands in processes of their own; at its moment each is killed before or after a write."""
        children = []
        for name, moment in zip(names, moments, strict=True):
            children.append(os.fork())
            if children[-1] == 0:
                given = options[name]
                log, noise = self.base / f"{name}.log", f"{name} {'2' in given}"
                _child(self.arguments(name, given), self.base / name, log, moment, noise)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        self._check_files()
        return [(code, (self.base / f"{name}.log").read_text()) for code, name in zip(codes, names, strict=True)]

    def files(self) -> list[Path]:
        """All files between the parties; by TLS both have them."""
        folders = [self.base / name / "runs" / f"job-{name}.files" for name in (BANK, TELCO)]
        return sorted(path for folder in (*folders, self.base / "shared") for path in folder.rglob("*.cutlayer"))

    def _check_files(self) -> None:
        """No file between the parties changes once it has its name: whoever has read it has the same."""
        for path in self.files():
            digest = sha256(path.read_bytes()).hexdigest()
            if self._seen.setdefault((path.parent.name, path.name), digest) != digest:
                raise AssertionError(f"{path} was written a second time, with other content")

    def closed(self) -> Year:
        """The year with what it left."""
        year = self.year
        year.files = Counter(name.partition("~")[0] for _, name in self._seen)
        for path in sorted((self.base / BANK).glob("*.parquet")):
            rows = parquet.read_table(path)
            year.scores[int(path.stem)] = sha256(json.dumps(rows.to_pylist()).encode()).hexdigest()
        for name in (BANK, TELCO):
            problems = verify_trail(self.base / name / ".cutlayer" / f"{name}.key.trail").problems
            if problems:
                raise AssertionError(f"the trail of {name}: {problems}")
            year.ledgers[name] = self._ledger(name)
        return year

    def _ledger(self, name: str) -> list[Any]:
        log = self.base / f"{name}.log"
        child = os.fork()
        if child == 0:
            _child(["ledger", ".cutlayer", "--json"], self.base / name, log)
        os.waitpid(child, 0)
        runs = json.loads(log.read_text())["runs"]
        return [
            {key: run[key] for key in ("rows", "count", "totals", "runs_on_these_rows", "all_runs")} for run in runs
        ]


class Refused(Exception):
    """A command ended with another exit code than done or waiting.

    Attributes:
        code: The exit code.
        said: Its message.
    """

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"exit code {code}: {said}")
        self.code, self.said = code, said


def _drawn(noise: str, count: int) -> bytes:
    return shake_256(noise.encode()).digest(count)


def _child(arguments: Sequence[str], folder: Path, log: Path, moment: int | None = None, noise: str = "") -> None:
    """Be the command: never returns. Keys of noise, and names of draws of labels, are those of the other year too."""
    code = 70
    try:
        os.chdir(folder)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if moment is not None:
            _killed_at(moment)
        drawn = partial(_drawn, noise)
        fixed = {**vars(secrets), "token_bytes": drawn, "token_hex": lambda count: drawn(count).hex()}
        vars(memory)["secrets"] = SimpleNamespace(**fixed)
        vars(keys)["secrets"] = SimpleNamespace(**{**fixed, "token_hex": secrets.token_hex})

        code = _run([*arguments])
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def import_ahead() -> None:
    """Import here what the commands import, so that their processes, which are forks of this one, do not each.

    A process of its own runs a training and a month to find out what that is: a process that has computed, whose
    threads a fork would lack, is no parent for others.
    """
    _command()
    with tempfile.TemporaryDirectory() as place:
        organise(Path(place), 200, 1)
        for name in _imported_by_a_month(Path(place)):
            with suppress(Exception), redirect_stdout(StringIO()):
                importlib.import_module(name)


def _imported_by_a_month(base: Path) -> list[str]:
    """Names of the modules of a process that ran a training and a month in a folder that `organise` made."""
    names = base / "modules"
    if os.fork() == 0:
        parties = Organisations(base, 0)
        for options in (parties.month(0), parties.month(1)):
            for name in (BANK, TELCO, BANK, TELCO, BANK):
                os.chdir(base / name)
                with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                    _run(parties.arguments(name, options[name]))
        names.write_text("\n".join(name for name in sys.modules if name not in ("__main__", "__mp_main__")))
        os._exit(0)
    os.wait()
    return names.read_text().splitlines()


def _killed_at(moment: int) -> None:
    """Have this process killed right before, or right after, a write reaches the disk or a file its name."""
    count = 0

    def watched(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            for after in (False, True):
                result = function(*arguments, **named) if after else None
                count += 1
                if count == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    for name in ("fsync", "fdatasync", "replace", "rename"):
        setattr(os, name, watched(getattr(os, name)))


def organise(base: Path, rows: int, months: int) -> None:
    """Make both organisations: job, private files, certificates, keys, and the tables of training and of all months."""
    draw = np.random.default_rng(0)
    (base / "job.yaml").write_text(JOB.replace("PORT", str(free_port())))
    (base / "shared").mkdir()
    for name in (BANK, TELCO):
        (base / name / "keys").mkdir(parents=True)
        (base / name / "party.yaml").write_text(PRIVATE[name])
        secret = base / name / ".cutlayer" / f"{name}.key"
        secret.parent.mkdir()
        secret.write_bytes(draw.bytes(32))
        secret.chmod(0o600)
    authority = Authority.create(base / BANK / "keys", "year", BANK)
    authority.invite(TELCO)
    _, request = make_request(base / TELCO / "keys", "year", TELCO)
    authority.sign(request, 400, base / TELCO / "keys" / f"{TELCO}.pem")
    for name in ("ca.pem", "crl.pem"):
        shutil.copy(base / BANK / "keys" / name, base / TELCO / "keys" / name)
    for month in range(months + 1):
        _write_tables(base, draw, month, rows)


def _write_tables(base: Path, draw: np.random.Generator, month: int, rows: int) -> None:
    """The tables of a month, of which the telco lacks a fifth of the bank's rows; month 0 is the training."""
    ids = np.arange(rows) + month * rows
    hidden = draw.normal(size=rows)
    own = {"age": hidden * 0.4 + draw.normal(size=rows), "income": draw.normal(size=rows)}
    label = (hidden + draw.normal(size=rows) * 0.5 > 0).astype(int)
    calls = {name: hidden + draw.normal(size=rows) for name in ("calls", "minutes", "usage")}
    has = draw.random(rows) < 0.8
    stem = f"{month:02}" if month else "train"
    labelled = {} if month else {"label": label}
    csv.write_csv(pa.table({"id": ids, **own, **labelled}), base / BANK / f"{stem}.csv")
    theirs = pa.table({"id": ids[has], **{name: values[has] for name, values in calls.items()}})
    csv.write_csv(theirs, base / TELCO / f"{stem}.csv")
    if month == CHANGED:
        renamed = theirs.rename_columns(["id", "calls", "minutes", "megabytes"])
        csv.write_csv(renamed, base / TELCO / "changed.csv")


def run_year(base: Path, *, months: int = 12, kills: int = 0, seed: int = 0, tls: bool = False) -> Year:
    """Run a year in a folder that `organise` made.

    Args:
        base: The folder.
        months: Number of months.
        kills: Number of times that each command is killed before it may end.
        seed: Seed of the moments.
        tls: As of `Organisations`.

    Raises:
        AssertionError: A file changed, a command was not done when repeated, or another one than expected was refused.
        Refused: A command was refused.
    """
    began = time.monotonic()
    parties = Organisations(base, kills, seed, tls=tls)
    parties.until_done(parties.month(0))
    for month in range(1, months + 1):
        if month == AGAIN:
            parties.until_done(parties.month(0, version="2"))
        options = parties.month(month)
        if month == ABSENT:
            assert parties.command(BANK, options) == WAITING
            options[BANK] += ["--absent", TELCO]
            assert parties.command(BANK, options) == DONE
            continue
        if month == CHANGED:
            parties.command(BANK, options)
            _refused(parties, parties.month(month, changed=True))
        parties.until_done(options, late=3 if month == LATE else 0)
    year = parties.closed()
    year.seconds = round(time.monotonic() - began, 1)
    return year


def _refused(parties: Organisations, options: dict[str, list[str]]) -> None:
    before = parties.files()
    refusal = None
    try:
        parties.command(TELCO, options)
    except Refused as refused:
        refusal = refused
    assert refusal is not None, "a table without a column of the training was taken"
    assert refusal.code == REFUSED, refusal
    assert "usage" in refusal.said, refusal
    assert parties.files() == before, "something was sent of a table that was refused"


def compare(undisturbed: Year, disturbed: Year) -> Iterator[str]:
    """What differs between two years that should have left the same."""
    if undisturbed.scores != disturbed.scores:
        yield f"scores of {[m for m in undisturbed.scores if undisturbed.scores[m] != disturbed.scores.get(m)]}"
    if undisturbed.ledgers != disturbed.ledgers:
        yield "ledgers"
    if undisturbed.files != disturbed.files:
        yield f"files: {undisturbed.files} and {disturbed.files}"


def both_years(rows: int, months: int, kills: int, seed: int, *, tls: bool) -> tuple[Year, Year]:
    """An undisturbed and a disturbed year of the same organisations."""
    years = []
    with tempfile.TemporaryDirectory() as place:
        (first := Path(place) / "made").mkdir()
        organise(first, rows, months)
        for name, times in (("undisturbed", 0), ("disturbed", kills)):
            base = Path(shutil.copytree(first, Path(place) / name))
            years.append(run_year(base, months=months, kills=times, seed=seed, tls=tls))
    return years[0], years[1]


def outcome(undisturbed: Year, disturbed: Year) -> dict[str, Any]:
    """What both years left and in what they differ, as JSON has it."""
    runs = {name: len(lines) for name, lines in disturbed.ledgers.items()}
    # `dataclasses.asdict` makes a counter of a counter's pairs.
    result = {name: {**vars(year)} for name, year in (("undisturbed", undisturbed), ("disturbed", disturbed))}
    for year in result.values():
        year.pop("ledgers")
        year["scores"] = len(year["scores"])
    return {**result, "runs_in_the_ledger": runs, "differences": [*compare(undisturbed, disturbed)]}


def main() -> None:
    """Run both years, and print what they left."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 2000), ("months", 12), ("kills", 2), ("seed", 0)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--tls", action="store_true")
    given = vars(options.parse_args())
    import_ahead()
    result = outcome(*both_years(**given))
    print(json.dumps(result, indent=1))
    sys.exit(bool(result["differences"]))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
