"""The steps of `cutlayer exchange`: a training, and a prediction, each a round of files that any start continues."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cutlayer.alignment.intersection import Purpose
from cutlayer.channel.grpc_files import Courier, FileClient, FileServer
from cutlayer.channel.store_files import StoreCourier
from cutlayer.cli.drift import drift_lines
from cutlayer.cli.organisation import Organisation
from cutlayer.cli.party_predict import lead_prediction, new_rows, trained_job
from cutlayer.cli.release import release_rows
from cutlayer.cli.report import has_failed
from cutlayer.config.reaches import source_path
from cutlayer.config.wording import did_you_mean
from cutlayer.data.sources import check_there
from cutlayer.errors import ConfigError
from cutlayer.jobs.approval import approvals_of, requires_approval
from cutlayer.jobs.check import check_job
from cutlayer.jobs.courier import check_release_by_file, label_recipients
from cutlayer.jobs.exchange import Exchange, RoundRecord, end_alone, exchange_result
from cutlayer.jobs.expiry import delete_expired
from cutlayer.jobs.forget import FORGOTTEN_RESULT
from cutlayer.jobs.links import LinkOptions, address_of, contract_of, notes_trail
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.party import run_party
from cutlayer.jobs.release_file import release_labels, release_training
from cutlayer.jobs.rounds import Round
from cutlayer.results.scores import Destination, check_scores_output, destination
from cutlayer.serving.between import PredictionSide
from cutlayer.serving.party_drift import DriftStatistic, measured_drift
from cutlayer.storage.durable import make_folder, write_whole
from cutlayer.training.finetuning import checked_absent
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.latest import begun_versions, checked_name, latest_run, rounds_of, run_of, set_latest, version_of
from cutlayer.training.process import run_threads
from cutlayer.training.tables import open_table

Result = tuple[dict[str, Any], list[str]]
"""What a step has to say: as JSON, and in lines."""


@dataclass(frozen=True)
class Steps:
    """A party's steps.

    Attributes:
        setup: The job, the private file and the certificates.
        name: Name of the party.
        base: Path of the run folders, without their version.
        folder: Folder of the files between the parties.
        keys: Source of the secrets.
        wait: Seconds to wait for each file.
        courier: Carries the files by TLS or a store; `None` for a folder that all parties see.
        max_drift: Maximum drift of rows to predict, against the training; `None` for no limit.
        written: Files that the steps wrote before they ended, to be brought to the other parties.
    """

    setup: Organisation
    name: str
    base: Path
    folder: Path
    keys: Keys
    wait: float
    courier: Courier | None = None
    max_drift: float | None = None
    written: list[Path] = field(default_factory=list)

    def delete_expired(self) -> list[str]:
        """Delete what the job does not keep any longer; returns the names of its rounds."""
        links = self.setup.links
        trail = None if links.trail is None else notes_trail(self.setup.job, self.name, links.trail, links.security)
        with nullcontext() if trail is None else closing(trail):
            return delete_expired(self.setup.job, self.name, rounds_of(self.base), self.folder, trail)

    def train(self, version: str | None, done: list[str], *, is_goal: bool, data: Path | None) -> Result:
        """The training of a version, unless it has ended.

        Args:
            version: Its name; `None` for the latest that has ended, or the first.
            done: Names of the steps of this start, to which this one is added.
            is_goal: Whether the training is what the command is for.
            data: Table of new rows that are predicted after it, which must be there before it begins.
        """
        run = self._run(version)
        if not self._has_ended(run):
            if not is_goal:
                self._check_begun(run)
            if data is not None:
                check_there(data, f"--data {data}")
            self._train(run)
            done.append("train")
        if run != self.base and (latest_run(self.base) is None or is_goal):
            set_latest(self.base, run)
        if is_goal:
            self._finish(f"train-{version_of(self.base, run)}")
        again = "" if done else ", before"
        lines = [f"{self.name}: the training of {run.name} has ended{again}; its report is {run}/report.html"]
        failed = has_failed(RunFolder(run))
        if failed:
            lines.append(f"{self.name}: a gate of {run.name} failed, or a guarantee that was tested: {run}/report.html")
        return {"run": str(run), "version": version_of(self.base, run), "failed": failed}, lines

    def predict(
        self,
        trained: dict[str, Any],
        round_: str,
        done: list[str],
        *,
        data: Path | None,
        out: str | None,
        overwrite: bool,
        absent: Sequence[str],
        key: Path | None,
    ) -> Result:
        """A round of predictions, unless it has ended.

        Args:
            trained: Result of `train`.
            round_: Name of the round.
            done: As in `train`.
            data: Table of new rows; `None` for that of the private file.
            out: At the label owner, where the predictions go.
            overwrite: Whether a file there may be replaced.
            absent: Absent partners.
            key: File of the key that replaced all keys of the run.
        """
        run = RunFolder.open(Path(trained["run"]))
        # A character that no name has: else version 1-a with round b were version 1 with round a-b.
        place = f"predict-{trained['version'] or ''}~{checked_name(round_)}"
        private = self._private(place)
        if (result := exchange_result(private)) is not None:
            self._finish(place)
            return {**trained, **result}, [f"{self.name}: round {round_} has ended, before"]
        job = trained_job(run, self.setup.job, self.name)
        with run_threads(job.train.threads, 1):
            table = new_rows(self.setup.private, data)
            limits, forgotten = self.setup.private.limits, self.setup.forgotten
            side = PredictionSide.open(job, run, self.name, table, limits, self.max_drift, forgotten)
            if self.name == job.active:
                written = destination(str(out), overwrite=overwrite)
                tables = (each for each in (table, self.setup.private.table) if each)
                own = [run.path, private, *(source_path(each.path) for each in tables)]
                begun = _has_begun(private, str(out))
                check_scores_output(written, own, overwrite=overwrite or begun)
                result, lines = self._lead(side, run, place, written, str(out), absent, round_)
            else:
                result, lines = self._follow(side, run, place, key)
        done.append("predict")
        self._finish(place)
        return {**trained, "round": round_, **result}, lines

    def _end(self, files: Exchange, result: dict[str, Any]) -> None:
        files.end(result)
        if self.courier is None:
            self.written.extend(files.written)

    def _finish(self, place: str) -> None:
        """Say to the other parties that a round has ended here, or hear it from them."""
        if self.courier is not None:
            with suppress(OSError, ValueError):  # of a training by another command there is no round
                peers = [*RoundRecord.read(self._private(place)).parcels]
                self.courier.finish(self.folder / place, peers, self.wait)

    def _run(self, version: str | None) -> Path:
        if version is not None:
            return run_of(self.base, version)
        if self._has_ended(self.base):  # trained by another command
            return self.base
        return latest_run(self.base) or run_of(self.base, "1")

    def _has_ended(self, run: Path) -> bool:
        """Whether this party's part of a training has ended, and its release was sent."""
        round_ = self._private(f"train-{version_of(self.base, run)}")
        if (round_ / "exchange.json").exists():
            result = exchange_result(round_)
            if result == FORGOTTEN_RESULT:
                wanted = f"a version of {self.base.name} that was not forgotten"
                raise ConfigError.expected(wanted, version_of(self.base, run), "name a new one with --version")
            return result is not None
        return RunFolder(run).has_ended or (run / "audit.json").exists()

    def _check_begun(self, run: Path) -> None:
        """Raise where a round is of a version that was not begun, beside others: a mistyped name would train it."""
        version, versions = version_of(self.base, run), begun_versions(self.base)
        if version not in versions and (versions or self._has_ended(self.base)):
            wanted = f"--round with one of the versions {', '.join(versions)}" if versions else "--round alone"
            got = f"--version {version}{did_you_mean(version, versions)}"
            raise ConfigError.expected(wanted, got, "a new version is trained without --round")

    def _private(self, place: str) -> Path:
        return rounds_of(self.base) / place

    def _round(self, place: str, table: Any, purpose: Purpose, peers: Sequence[str], run: Path | None = None) -> Round:
        job, limits, private = self.setup.job, self.setup.private.limits, self._private(place)
        folder = self.folder / place
        return Round(job, self.name, table, limits, purpose, folder, private, tuple(peers), run, self.courier)

    def _train(self, run: Path) -> None:
        job, name = self.setup.job, self.name
        check_job(job, name)
        check_release_by_file(job)
        table = open_table(job, name, {}, self.keys)
        round_ = self._round(f"train-{version_of(self.base, run)}", table, Purpose.ALIGN, job.peers_of(name))
        links = replace(self.setup.links, rows=round_.rows)
        with round_.open(links, self.wait) as files:
            if name == job.active:
                asked = label_recipients(job)
                round_.lead(files, self._labels(round_, run, links, asked) if asked else None)
                if not RunFolder(run).has_ended:
                    links = replace(links, releases=tuple(round_.release_of(peer) for peer in job.passives))
                    run_party(job, name, run, self._options(run), Progress(), links)
            else:
                round_.follow(files, self._release(round_, run, links))
            self._end(files, {"run": run.name})

    def _options(self, run: Path) -> Options:
        return Options(self.keys, resume=(run / "job.yaml").exists())

    def _labels(self, round_: Round, run: Path, links: LinkOptions, asked: Sequence[str]) -> Callable[[], None]:
        files = {peer: round_.labels_for(peer) for peer in asked}

        def write() -> None:
            if all(path.exists() for path in files.values()):
                return
            for path in files.values():  # of a start that was killed: none was sent without the others
                path.unlink(missing_ok=True)
            release_labels(round_.job, files, run, self._options(run), links, proved=False)

        return write

    def _release(self, round_: Round, run: Path, links: LinkOptions) -> Callable[[Path | None], None]:
        out = round_.release_of(self.name)

        def write(labels: Path | None) -> None:
            if out.exists() and (run / "audit.json").exists():
                return
            out.unlink(missing_ok=True)  # of a start that was killed: it was not sent
            release_training(round_.job, self.name, out, run, self._options(run), links, labels)

        return write

    def _lead(
        self,
        side: PredictionSide,
        run: RunFolder,
        place: str,
        out: Destination,
        named: str,
        names: Sequence[str],
        round_name: str,
    ) -> Result:
        job = side.job
        absent = checked_absent(names, [*side.model.record.widths], side.name)
        peers = [peer for peer in job.passives if peer not in absent]
        links, private = self.setup.links, self._private(place)

        def predict(links: LinkOptions) -> Result:
            job = self.setup.job
            document, lines, _ = lead_prediction(side, run, job, links, out, names, alone=True, round_=round_name)
            return document, lines

        if not peers:
            _begin(private, named)
            result, lines = predict(links)
            end_alone(private, result)
            return result, lines
        round_ = self._round(place, side.table, Purpose.PREDICT, peers, run.path)
        with round_.open(links, self.wait) as files:
            round_.lead(files)
            _begin(private, named)
            releases = tuple(round_.release_of(peer) for peer in peers)
            result, lines = predict(replace(links, rows=round_.rows, releases=releases))
            self._end(files, result)
        return result, lines

    def _follow(self, side: PredictionSide, run: RunFolder, place: str, key: Path | None) -> Result:
        job, name = side.job, self.name
        round_ = self._round(place, side.table, Purpose.PREDICT, (job.active,), run.path)
        links = replace(self.setup.links, rows=round_.rows)
        out, counted = round_.release_of(name), round_.private / "prediction"

        def number(made: int) -> int:
            """The number of this prediction, on disk before it is counted: a start that was killed counts once."""
            if not counted.exists():
                write_whole(counted, f"{made}\n")
            return int(counted.read_text())

        drifted, partial = round_.private / "drift.json", out.with_name(f"{out.name}.partly")

        def write(_: Path | None) -> None:
            if not out.exists():
                partial.unlink(missing_ok=True)
                release_rows(side, self.setup.job, run, partial, links, key, number)
                # Before the release has its name: a start that goes on with it does not measure again.
                write_whole(drifted, json.dumps([asdict(row) for row in measured_drift([side.drift])]))
                partial.replace(out)

        with round_.open(links, self.wait) as files:
            found = round_.follow(files, write)
            drift = json.loads(drifted.read_text())
            result = {"rows": found.common, "warnings": list(side.table.arrivals), "drift": drift}
            self._end(files, result)
        lines = drift_lines([DriftStatistic(**row) for row in drift])
        return result, [f"{name}: released {found.common or 0:,} rows to {job.active}", *lines]


@contextmanager
def courier_of(setup: Organisation, name: str, folder: Path, store: str | None = None) -> Iterator[Courier]:
    """What carries the files of rounds, by TLS or by an object store, while the block is open.

    Args:
        setup: The job, the private file and the certificates.
        name: Name of the party.
        folder: Folder with a folder of files for each round.
        store: Address of a folder of a store; `None` where the parties connect.

    Raises:
        ConfigError: The label owner has no address, or it is in use; or a package of the store is not installed.
        TrustError: This party's certificate is not of its identity.
    """
    job, links = setup.job, setup.links
    before = _nothing
    if links.trail is not None and requires_approval(job, name):
        before = approvals_of(job, name, links.trail, links.security).check_still_hold
    options = {"security": links.security, "contract": contract_of(job), "notify": links.notify}
    if store is not None:
        yield StoreCourier(store, name, before)
        return
    address = address_of(job)
    if name == job.active:
        make_folder(folder)
        with FileServer(links.listen or address, name, job.passives, folder, before, **options) as server:
            yield server
    else:
        with FileClient(address, name, job.active, before, **options) as client:
            yield client


def _nothing() -> None:
    """No approvals are required."""


def _begin(private: Path, out: str) -> None:
    """Note where the predictions of a round go, before they do."""
    make_folder(private)
    write_whole(private / "out", out)


def _has_begun(private: Path, out: str) -> bool:
    """Whether the predictions of a round went there already, in a start that was killed before its end."""
    path = private / "out"
    return path.exists() and path.read_text() == out
