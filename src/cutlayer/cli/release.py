"""`cutlayer release`: what a party sends as a file, for organisations that open no port."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.cli.app import print_lines, print_result
from cutlayer.cli.drift import checked_max_drift, drift_lines, exit_if_drifted
from cutlayer.cli.organisation import Organisation, load_party
from cutlayer.cli.run import keys_for
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.config import Job
    from cutlayer.jobs.links import LinkOptions
    from cutlayer.serving.between import PredictionSide
    from cutlayer.training.folder import RunFolder


@verb(consent=("model", "path"))
def release(
    job: Path,
    *,
    name: str,
    local: Path,
    out: Path,
    labels: Path | None = None,
    rows: Path | None = None,
    folder: Path | None = None,
    run: Path | None = None,
    data: Path | None = None,
    max_drift: float | None = None,
    pilot: int = 0,
    resume: bool = False,
    key: Path | None = None,
    device: str | None = None,
    plaintext: bool = False,
    json: bool = False,
) -> None:
    """Write a passive party's rows to a signed file in place of a connection; before, the label owner's drawn labels.

    Args:
        out: The file to write; it is for the label owner, or from it for a partner.
        labels: The file that the label owner wrote for this party, which grades its rows.
        folder: The run folder to create; default: runs/JOB-NAME next to the private file.
        run: Release new rows for a prediction, with the run in this folder.
        data: The table of new rows, with --run; default: that of the private file.
        max_drift: With --run: exit with 6 if rows drifted from the training by more (PSI); drifted columns stay here.

    Example: cutlayer release job.yaml --as telco --local telco.yaml --out telco.release
    """
    for option, value in (("--data", data), ("--max-drift", checked_max_drift(max_drift))):
        if value is not None and run is None:
            raise ConfigError.expected(f"{option} with --run", f"{option} alone", "name the run, or leave it out")
    setup = load_party(job, name, local, plaintext=plaintext)
    from cutlayer.consent import allowed

    links = replace(setup.links, rows=rows)
    place = folder or setup.base
    with allowed(*setup.private.allow_models):
        if run is not None:
            _release_new_rows(setup, links, out, run, data, key, max_drift, as_json=json)
            return
        from cutlayer.cli.report import finish, print_trail
        from cutlayer.config.load import with_device
        from cutlayer.jobs.options import Options
        from cutlayer.jobs.release_file import release_labels, release_training

        options = Options(keys_for(local.parent, key), resume, pilot=pilot)
        placed = with_device(setup.job, device, name)
        if name == placed.active and labels is None:
            written = release_labels(placed, out, place, options, links)
            lines = (f"{path}: drawn labels for {peer}, which reads it with --labels" for peer, path in written.items())
            print_result(json, {"party": name, "out": {peer: str(path) for peer, path in written.items()}}, *lines)
            return
        ran = release_training(placed, name, out, place, options, links, labels)
    finish(ran, as_json=json)
    if not json:
        print_trail(links.trail)
        print_lines(f"{out}: for {setup.job.active}, which reads it with cutlayer party --release; it is not encrypted")


def _release_new_rows(
    setup: Organisation,
    links: LinkOptions,
    out: Path,
    run: Path,
    data: Path | None,
    key: Path | None,
    max_drift: float | None,
    *,
    as_json: bool,
) -> None:
    from cutlayer.cli.party_predict import new_rows, trained_job
    from cutlayer.serving.between import PredictionSide
    from cutlayer.serving.party_drift import measured_drift
    from cutlayer.training.folder import RunFolder
    from cutlayer.training.process import run_threads

    folder, name = RunFolder.open(run), setup.name
    trained = trained_job(folder, setup.job, name)
    if name == trained.active:
        raise ConfigError.expected("a passive party", f"{name}, which has the labels", "it runs cutlayer party predict")
    with run_threads(trained.train.threads, 1):
        table = new_rows(setup.private, data)
        side = PredictionSide.open(trained, folder, name, table, setup.private.limits, max_drift, setup.forgotten)
        released = release_rows(side, setup.job, folder, out, links, key)
    text = f"{out}: {released:,} rows for {trained.active}, which reads it with cutlayer party predict --release"
    drift = measured_drift([side.drift])
    document = {"party": name, "out": str(out), "rows": released, "warnings": side.table.arrivals}
    print_result(as_json, {**document, "drift": [asdict(row) for row in drift]}, text, *drift_lines(drift))
    exit_if_drifted(drift, max_drift, f"{out} is written")


def release_rows(
    side: PredictionSide,
    job: Job,
    folder: RunFolder,
    out: Path,
    links: LinkOptions,
    key: Path | None,
    counted: Callable[[int], int] = lambda made: made,
) -> int:
    """Release a passive party's new rows to a file, once its side is open; returns their number.

    Args:
        side: Its side.
        job: The job with its private part as it is now.
        folder: Its run folder.
        out: File to write.
        links: Certificates, trail, and the file of the common rows.
        key: File of the key that replaced all keys of the run.
        counted: Gives the number of this prediction, by the number of those that were counted.
    """
    from cutlayer.jobs.links import trail_of
    from cutlayer.serving.by_file import release_prediction, with_agreed_rows
    from cutlayer.serving.prediction_release import PredictionReleases
    from cutlayer.training.keys import read_key

    serving = PredictionReleases(side.job, folder, side.name, side.width, read_key(key) if key else None)
    if serving.counted:
        serving.repeat_prediction(counted(serving.predictions_made))
    trail = trail_of(job, side.name, links, folder.path)
    return release_prediction(with_agreed_rows(side, links.rows), serving, out, links.security, trail)
