"""`cutlayer release`: what a party sends as a file, for organisations that open no port."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.cli.app import answer, say
from cutlayer.cli.organisation import Organisation, organisation
from cutlayer.cli.run import keys_for
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.jobs.links import LinkOptions


@verb(consent=("model",))
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

    Example: cutlayer release job.yaml --as telco --local telco.yaml --out telco.release
    """
    if data is not None and run is None:
        raise ConfigError.expected("--data with --run", "--data alone", "name the run, or leave it out")
    setup = organisation(job, name, local, plaintext=plaintext, timeout=0, deadline=0, reconnect=None)
    from dataclasses import replace

    from cutlayer.consent import allowed

    links = replace(setup.links, rows=rows)
    place = folder or local.parent / "runs" / f"{job.stem}-{name}"
    with allowed(*setup.private.allow_models):
        if run is not None:
            _release_new_rows(setup, links, name, out, run, data, key, as_json=json)
            return
        from cutlayer.cli.report import finish, say_trail
        from cutlayer.config.load import with_device
        from cutlayer.jobs.options import Options
        from cutlayer.jobs.release_file import release_labels, release_training

        options, placed = (
            Options(keys_for(local.parent, key), resume, pilot=pilot),
            with_device(setup.job, device, name),
        )
        if name == placed.active and labels is None:
            written = release_labels(placed, out, place, options, links)
            lines = (f"{path}: drawn labels for {peer}, which reads it with --labels" for peer, path in written.items())
            answer(json, {"party": name, "out": {peer: str(path) for peer, path in written.items()}}, *lines)
            return
        ran = release_training(placed, name, out, place, options, links, labels)
    finish(ran, as_json=json)
    if not json:
        say_trail(links.trail)
        say(f"{out}: for {setup.job.active}, which reads it with cutlayer party --release; it is not encrypted")


def _release_new_rows(
    setup: Organisation,
    links: LinkOptions,
    name: str,
    out: Path,
    run: Path,
    data: Path | None,
    key: Path | None,
    *,
    as_json: bool,
) -> None:
    from cutlayer.cli.party_predict import new_rows, trained_job
    from cutlayer.jobs.links import open_trail
    from cutlayer.serving.between import PredictionSide
    from cutlayer.serving.by_file import release_prediction, with_agreed_rows
    from cutlayer.serving.prediction_release import Serving
    from cutlayer.training.folder import RunFolder
    from cutlayer.training.keys import read_key
    from cutlayer.training.process import run_threads

    folder = RunFolder.open(run)
    trained = trained_job(folder, setup.job)
    if name == trained.active:
        raise ConfigError.expected("a passive party", f"{name}, which has the labels", "it runs cutlayer party predict")
    with run_threads(trained.train.threads, 1):
        side = PredictionSide.open(trained, folder, name, new_rows(setup.private, data), setup.private.limits)
        serving = Serving(trained, folder, name, side.width, read_key(key) if key else None)
        trail = None if links.trail is None else open_trail(trained, name, links.trail, links.security)
        side = with_agreed_rows(side, links.rows)
        released = release_prediction(side, serving, out, links.security, trail)
    text = f"{out}: {released:,} rows for {trained.active}, which reads it with cutlayer party predict --release"
    document = {"party": name, "out": str(out), "rows": released, "warnings": side.table.arrivals}
    answer(as_json, document, text)
