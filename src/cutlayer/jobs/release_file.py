"""Writes what a party sends in a training to a file: a partner its single release, the label owner drawn labels."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from cutlayer.alignment.agreed_before import agreed_alignment
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.parcel import Head, ParcelWriter
from cutlayer.channel.port import link
from cutlayer.channel.receiving import receive, send_done
from cutlayer.config import Job
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.courier import (
    LABEL_RUNS_FILE,
    check_release_by_file,
    label_recipients,
    open_labels,
    sent_label_runs,
)
from cutlayer.jobs.links import LinkOptions, trail_of
from cutlayer.jobs.options import Options
from cutlayer.jobs.party import finish_passive
from cutlayer.jobs.pilot import check_pilot
from cutlayer.parties.active import ActiveParty
from cutlayer.parties.drive.drive import Party, drive_together
from cutlayer.parties.drive.random_state import with_own_random_state
from cutlayer.parties.drive.to_file import (
    Asker,
    answer_hello,
    confirm_order,
    forward_messages,
    run_to_file,
    stand_in,
    without_order,
    write_messages_to,
)
from cutlayer.parties.passive import PassiveParty
from cutlayer.parties.phases.release import ask_for_release
from cutlayer.parties.session.local import LocalSide, packing_of
from cutlayer.parties.session.observer import Observer
from cutlayer.storage.durable import check_output
from cutlayer.training.folder import RunFolder
from cutlayer.training.process import repeatable_kernels, run_threads
from cutlayer.training.tables import open_table
from cutlayer.training.together import local_side
from cutlayer.training.training_folder import training_folder


def release_labels(
    job: Job, out: Path | Mapping[str, Path], folder: Path, options: Options, links: LinkOptions, *, proved: bool = True
) -> Mapping[str, Path]:
    """Draw the training labels, and write them to a file for each partner that grades rows by them.

    Args:
        job: Job with the label owner's private part.
        out: File to write; with several partners the name of each is added to it. Or a file for each.
        folder: Run folder of the label owner, to be made: the training goes on from it, with the same draws.
        options: Keys, and whether to write the files again of a folder that exists.
        links: Certificates, trail, and the file of the common rows.
        proved: Whether the partners have proved that they hold the common rows; else no file has the digest of these.

    Returns:
        The file of each partner.

    Raises:
        RunFolderError: A file or `folder` exists.
        CutlayerError: Bad input.
    """
    name, asked = job.active, label_recipients(job)
    _check(job, name, options)
    if not asked:
        remedy = f"{name} reads the releases with cutlayer party --as {name} --release"
        raise ConfigError.expected(
            "a partner that grades rows by drawn labels, to write them to a file", "none", remedy
        )
    if isinstance(out, Path):
        paths = {peer: out if len(asked) == 1 else out.with_name(f"{out.stem}-{peer}{out.suffix}") for peer in asked}
    else:
        paths = {peer: out[peer] for peer in asked}
    check_output(*paths.values())
    with _open_side(job, name, folder, options, links) as (run, local):
        runs = sent_label_runs(run.path) or {peer: secrets.token_hex(8) for peer in asked}
        # Before a file has its name: what is not written here is not known to be an answer.
        run.write_json(LABEL_RUNS_FILE, runs)
        _write_labels(job, local, paths, runs, links, proved=proved)
    return paths


def _write_labels(
    job: Job, local: LocalSide, paths: Mapping[str, Path], runs: Mapping[str, str], links: LinkOptions, *, proved: bool
) -> None:
    name = job.active
    trail = trail_of(job, name, links)
    ends = {peer: link(name, peer, runs.get(peer) or secrets.token_hex(8)) for peer in job.passives}
    side = ActiveParty(job, local, {peer: here for peer, (here, _) in ends.items()}, Observer())
    parties = {peer: stand_in(there, side) for peer, (_, there) in ends.items()}
    with ExitStack() as files, repeatable_kernels([local.device]):
        if trail is not None:
            files.callback(trail.close)
        for peer, path in paths.items():
            parcel = files.enter_context(ParcelWriter(path, Head(name, peer, runs[peer]), links.security))
            write_messages_to(ends[peer][0], parcel, trail, None if proved else without_order)
        drive_together({name: with_own_random_state(side.send_labels(), local.starting_key, local.device), **parties})


def release_training(
    job: Job, name: str, out: Path, folder: Path, options: Options, links: LinkOptions, labels: Path | None = None
) -> RunFolder:
    """Release a passive party's common rows for a training, once, to a file.

    Args:
        job: Job with this party's private part.
        name: Name of the party.
        out: File to write.
        folder: Run folder of the party, to be made; it holds its account and its part of the model.
        options: Keys, and whether to go on with a folder that exists.
        links: Certificates, trail, and the file of the common rows.
        labels: The file that the label owner wrote with `release_labels`, for a party that grades its rows.

    Raises:
        RunFolderError: `out` or `folder` exists.
        CutlayerError: Bad input.
    """
    if name == job.active:
        remedy = f"it reads the releases with cutlayer party --as {name} --release"
        raise ConfigError.expected("a passive party", f"{name}, which has the labels", remedy)
    _check(job, name, options)
    sent_by, messages = open_labels(job, name, labels, links.security, links.notify)
    made: list[PassiveParty] = []
    with _open_side(job, name, folder, options, links) as (run, local):
        limit = local.config.limits.embedding_norm

        def party(port: Port) -> Party:
            made.append(PassiveParty(job, local, port))
            return with_own_random_state(made[0].run(), local.starting_key, local.device)

        trail = trail_of(job, name, links)
        with repeatable_kernels([local.device]):
            asker = lambda port: _ask_once(job, port, made, limit, messages if sent_by else None)  # noqa: E731
            outcome = run_to_file(job, name, out, links.security, trail, party, asker, sent_by)
        finish_passive(job, local, run, made[0], outcome)
    return run


def _check(job: Job, name: str, options: Options) -> None:
    check_job(job, name)
    check_release_by_file(job)
    if options.pilot:
        check_pilot(job, options.pilot)


@contextmanager
def _open_side(
    job: Job, name: str, folder: Path, options: Options, links: LinkOptions
) -> Iterator[tuple[RunFolder, LocalSide]]:
    """The run folder of a party whose messages are files, and its side with the rows that were agreed before."""
    table = open_table(job, name, options.tables, options.keys)
    alignment = agreed_alignment(job, name, links.rows, table, pilot=options.pilot)
    with (
        training_folder(folder, job, resume=options.resume, security=links.security) as run,
        run_threads(job.train.threads, job.train.batch_size),
    ):
        local = local_side(job, name, run, run.path / "data", options.keys, table, resume=options.resume)
        yield run, replace(local, alignment=alignment)


def _ask_once(
    job: Job, port: Port, made: Sequence[PassiveParty], limit: float, messages: Iterable[Message] | None
) -> Asker:
    port.compression = packing_of(job, port.peer)
    if messages is None:
        yield from answer_hello(port)
        width = yield from confirm_order(port)
    else:
        width = yield from forward_messages(port, messages)
    # The active party computes the same.
    yield from ask_for_release(port, made[0].split, width, limit, made[0].pilot)
    send_done(port)
    yield from receive(port, Kind.EVIDENCE)
    yield from receive(port, Kind.CLOSE)
