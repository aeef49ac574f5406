"""Writes a passive party's single release for a training to a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cutlayer.alignment.agreed_before import agreed_alignment
from cutlayer.channel import Kind, Port
from cutlayer.channel.receiving import DONE, receive
from cutlayer.config import Job
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.courier import check_by_courier
from cutlayer.jobs.links import LinkOptions, open_trail
from cutlayer.jobs.options import Options
from cutlayer.jobs.party import finish_passive
from cutlayer.parties.drive.drive import Party
from cutlayer.parties.drive.random_state import isolated
from cutlayer.parties.drive.to_file import Asker, greeted, recorded, same_order
from cutlayer.parties.passive import PassiveParty
from cutlayer.parties.phases.release import ask_for_release
from cutlayer.training.folder import RunFolder
from cutlayer.training.process import repeatable_kernels, run_threads
from cutlayer.training.tables import open_table
from cutlayer.training.together import local_side


def release_training(job: Job, name: str, out: Path, folder: Path, options: Options, links: LinkOptions) -> RunFolder:
    """Release a passive party's common rows for a training, once, to a file.

    Args:
        job: Job with this party's private part.
        name: Name of the party.
        out: File to write.
        folder: Run folder of the party, to be made; it holds its account and its part of the model.
        options: Keys, and whether to go on with a folder that exists.
        links: Certificates, trail, and the file of the common rows.

    Raises:
        RunFolderError: `out` or `folder` exists.
        CutlayerError: Bad input.
    """
    if name == job.active:
        remedy = f"it reads the releases with cutlayer party --as {name} --release"
        raise ConfigError.expected("a passive party", f"{name}, which has the labels", remedy)
    check_job(job, name)
    check_by_courier(job)
    table = open_table(job, name, options.tables)
    alignment = agreed_alignment(job, name, links.rows, table)
    made: list[PassiveParty] = []
    with (
        RunFolder.new_or_resumed(folder, job, resume=options.resume) as run,
        run_threads(job.train.threads, job.train.batch_size),
    ):
        local = local_side(job, name, run, run.path / "data", options.keys, table, resume=options.resume)
        local = replace(local, alignment=alignment)
        limit = local.config.limits.embedding_norm

        def party(port: Port) -> Party:
            made.append(PassiveParty(job, local, port))
            return isolated(made[0].run(), local.starting_key, local.device)

        trail = None if links.trail is None else open_trail(job, name, links.trail, links.security)
        with repeatable_kernels([local.device]):
            asker = lambda port: _ask_once(port, made, limit)  # noqa: E731
            outcome = recorded(job, name, out, links.security, trail, party, asker)
        finish_passive(job, local, run, made[0], outcome)
    return run


def _ask_once(port: Port, made: Sequence[PassiveParty], limit: float) -> Asker:
    yield from greeted(port)
    width = yield from same_order(port)
    yield from ask_for_release(port, made[0].split, width, limit)  # the active party computes the same
    port.send(Kind.CLOSE, fields={"reason": DONE})
    yield from receive(port, Kind.EVIDENCE)
    yield from receive(port, Kind.CLOSE)
