"""`cutlayer party predict`: one organisation's part of a prediction, in its own process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutlayer.cli.app import print_result
from cutlayer.cli.drift import checked_max_drift, drift_lines, exit_if_drifted
from cutlayer.cli.organisation import check_scores_options, checked_releases, load_party
from cutlayer.cli.predict import table_like
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.config import Job, PrivateFile, TableConfig
    from cutlayer.jobs.links import LinkOptions
    from cutlayer.results.scores import Destination
    from cutlayer.serving.between import PredictionSide
    from cutlayer.serving.party_drift import DriftStatistic
    from cutlayer.serving.prediction_release import PredictionReleases
    from cutlayer.training.folder import RunFolder


@verb("party predict", consent=("model", "path"))
def party_predict(
    job: Path,
    *,
    name: str,
    local: Path,
    out: str | None = None,
    overwrite: bool = False,
    run: Path | None = None,
    data: Path | None = None,
    absent: list[str] | None = None,
    max_drift: float | None = None,
    key: Path | None = None,
    timeout: float = 300.0,
    deadline: float = 3600.0,
    reconnect: float | None = None,
    plaintext: bool = False,
    release: list[Path] | None = None,
    rows: Path | None = None,
    json: bool = False,
) -> None:
    """Predict new rows between organisations: this party's part, with its own table and its own part of the model.

    Args:
        out: The file that the active party writes, .parquet or .csv; or a table of a database, URL#TABLE.
        run: This party's folder of the training; default: runs/JOB-NAME next to the private file.
        data: The table of new rows; default: the table of the private file.

    Example: cutlayer party predict job.yaml --as bank --local bank.yaml --data new.csv --out scores.parquet
    """
    setup = load_party(job, name, local, plaintext=plaintext, timeout=timeout, deadline=deadline, reconnect=reconnect)
    checked_job, private, links = setup.job, setup.private, setup.links
    from cutlayer.channel.address import check_loopback
    from cutlayer.config.reaches import source_path
    from cutlayer.consent import allowed
    from cutlayer.jobs.links import address_of, reporting_failure
    from cutlayer.results.scores import check_scores_output, destination
    from cutlayer.serving.between import PredictionSide
    from cutlayer.serving.prediction_release import PredictionReleases
    from cutlayer.training.folder import RunFolder
    from cutlayer.training.keys import read_key
    from cutlayer.training.process import run_threads

    folder = RunFolder.open(run or setup.base)
    trained = trained_job(folder, checked_job, name)
    links = replace(links, releases=checked_releases(checked_job, name, release, rows), rows=rows, run=folder.path)
    if links.security is None and not links.releases:
        check_loopback(address_of(checked_job))
    table = new_rows(private, data)
    check_scores_options(checked_job.active, name, out, absent)
    written = destination(out, overwrite=overwrite) if out is not None else None
    if written is not None:
        tables = (each.path for each in (table, private.table) if each)
        kept = [folder.path, *map(source_path, tables), *([rows] if rows else [])]
        check_scores_output(written, kept, overwrite=overwrite)
    supplied = read_key(key) if key else None
    with allowed(*private.allow_models), run_threads(trained.train.threads, 1, processes=len(trained.parties)):
        limit = checked_max_drift(max_drift)
        with reporting_failure(checked_job, name, links):
            side = PredictionSide.open(trained, folder, name, table, private.limits, limit, setup.forgotten)
        if name == trained.active and written is not None:
            document, lines, drift = lead_prediction(side, folder, checked_job, links, written, absent or ())
            print_result(json, document, *lines)
            exit_if_drifted(drift, side.max_drift, f"{written} is written")
        else:
            releases = PredictionReleases(trained, folder, name, side.width, supplied)
            _follow(side, releases, checked_job, links, as_json=json)


def trained_job(folder: RunFolder, job: Job, name: str) -> Job:
    """The job of the run, whose shared part the job file must still have; protections are those of the training.

    Limits of what grades carry are those of the party's private file as it is now: they are its own to set.

    Raises:
        ConfigError: The folder is of another job.
    """
    from cutlayer.config.load import load_closed_job
    from cutlayer.models.bottom_fits import fit_with_limits

    trained = load_closed_job(folder.path / "job.yaml")
    if trained.digest() != job.digest():
        wanted = f"the job that {folder.path} was trained with"
        raise ConfigError.expected(wanted, "another one", "the shared part of the job must be equal")
    fit = fit_with_limits(trained.parties[name].fit, job.parties[name].fit)
    return trained.with_parties({name: {"fit": fit}})


def new_rows(private: PrivateFile, data: Path | None) -> TableConfig:
    """The table of new rows: that of the option, or of the private file.

    Raises:
        ConfigError: Neither names one.
    """
    if data is not None:
        return table_like(private, data)
    if private.table is None:
        raise ConfigError.expected("a table of new rows", "none", "name one with --data, or in the party file")
    return private.table


def lead_prediction(
    side: PredictionSide,
    folder: RunFolder,
    job: Job,
    link_options: LinkOptions,
    out: Destination,
    names: Sequence[str],
    *,
    alone: bool = False,
    round_: str = "",
) -> tuple[dict[str, Any], list[str], tuple[DriftStatistic, ...]]:
    """The active party's part of a prediction, once its side is open; returns the result as JSON and lines, and drift.

    Args:
        side: Its side.
        folder: Its run folder.
        job: The job, as its file is now.
        link_options: How to connect, or the files of the partners' releases.
        out: Where the predictions go.
        names: Absent parties.
        alone: Whether all partners may be absent.
        round_: Name of the round, where it is one.
    """
    from cutlayer.jobs.courier import open_releases
    from cutlayer.jobs.links import open_server
    from cutlayer.parties.drive.by_links import drive_over_links
    from cutlayer.serving.between import request_predictions
    from cutlayer.serving.by_file import with_agreed_rows
    from cutlayer.serving.party_drift import measured_drift
    from cutlayer.serving.provenance import write_provenance
    from cutlayer.training.finetuning import checked_absent

    absent = checked_absent(names, [*side.model.record.widths], side.name)
    peers = [name for name in job.passives if name not in absent]
    if link_options.releases or (alone and not peers):
        side = with_agreed_rows(side, link_options.rows, alone=not peers)
        with open_releases(job, peers, link_options.releases, link_options.security, link_options.notify) as files:
            done = drive_over_links(request_predictions(side, files.ports, absent), files, link_options.deadline)
    elif peers:
        with open_server(job, link_options, peers=peers) as links:
            links.wait_for_peers()
            done = drive_over_links(request_predictions(side, links.ports, absent), links, link_options.deadline)
    else:
        raise ConfigError.expected("a passive party that is not absent", "none", "use cutlayer predict")
    task, warnings = side.model.task, side.table.arrivals
    counts = done.write(out, task, warnings)
    rows, own = len(done.ids), len(side.table.digests)
    made = write_provenance(
        out, job, folder, task, rows=rows, contributed=counts, absent=absent, warnings=warnings, round=round_
    )
    contributed = [name for name, count in counts.items() if count]
    lines = [f"{out}: {rows:,} rows, from {', '.join(contributed)}"]
    if own > rows:
        lines.append(f"  {own - rows:,} of the {own:,} ids of {side.name} are not with {', '.join(peers)}: left out")
    document = {"party": side.name, "out": str(out), "rows": rows, "contributed": contributed}
    drift = measured_drift([side.drift])
    extra = {"warnings": warnings, "drift": [asdict(row) for row in drift]}
    return {**document, **extra, "model": made.model_dump(mode="json")}, [*lines, *drift_lines(drift)], drift


def _follow(side: PredictionSide, serving: PredictionReleases, job: Job, links: LinkOptions, *, as_json: bool) -> None:
    from cutlayer.jobs.links import make_client, reporting_failure
    from cutlayer.parties.drive.by_links import drive_over_links
    from cutlayer.serving import between
    from cutlayer.serving.party_drift import measured_drift

    with reporting_failure(job, side.name, links):
        serving.check()  # before the active party waits for an alignment
    with make_client(job, side.name, links) as link:
        link.open(links.timeout)
        rows = drive_over_links(between.serve_requests(side, serving, link.port), link, links.deadline)
    made, planned = (serving.predictions_made, serving.plan.serving) if serving.counted else (None, None)
    prediction = f"; prediction {made} of {planned} planned" if serving.counted else ""
    document = {"party": side.name, "rows": rows, "predictions": made, "planned": planned}
    drift = measured_drift([side.drift])
    document |= {"warnings": side.table.arrivals, "drift": [asdict(row) for row in drift]}
    line = f"{side.name}: released {rows:,} rows to {job.active}{prediction}"
    print_result(as_json, document, line, *drift_lines(drift))
    exit_if_drifted(drift, side.max_drift, "the rows are released")
