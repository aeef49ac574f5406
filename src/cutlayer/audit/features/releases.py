"""The embeddings of the rows that records of a party's messages hold, as an attacker would read them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cutlayer.alignment.held_rows import held_of_run
from cutlayer.channel.row_history import NO_STEP, read_followed
from cutlayer.channel.transcript import Step, read_epochs
from cutlayer.config import Job
from cutlayer.config.phases import Phase, grades_rows
from cutlayer.data.ids import as_sortable
from cutlayer.data.streams import RandomStream
from cutlayer.errors import NotApplicable
from cutlayer.parties.session.checkpoint import RELEASED_FILE, Checkpoints
from cutlayer.storage.tensor_file import stored_tensors
from cutlayer.training.folder import RunFolder

MAX_EPOCHS_SIDE_BY_SIDE, MAX_WIDTH = 8, 4096
"""Maximum number of epochs whose embeddings stand side by side, and of columns that these have together."""
MIN_ROWS = 8
"""Rows that were sent in every epoch below which an attack has too few to learn from."""
UNRECORDED = "nothing that {0} sent was recorded; set parties.{0}.audit.every to epoch or end"


class Release(NamedTuple):
    """One release of some rows.

    Attributes:
        name: Which release of each row it is.
        rows: Row numbers, int64 (n,).
        embeddings: Embeddings as sent, a mean of them, or several side by side, float32 (n, width).
    """

    name: str
    rows: Tensor
    embeddings: Tensor


def recorded_releases(job: Job, folder: RunFolder, party: str) -> list[Release]:
    """Releases of a party: the last recorded one, the mean of a row's releases, the first recorded, and several epochs.

    The first and the third are from the party's own record; the epoch is fixed beforehand. Of a party that releases
    once about `audit.rows` of its rows are taken, at random.

    The mean is what an attacker makes of noise that is drawn anew for every release. It is of all epochs, where the
    active party's record of followed rows is here; else of the releases of the last one's rows in the party's own
    record, if some row was recorded more than once.

    The first recorded release and several epochs side by side are there where the party has protections. One that acts
    on the training of the bottom model has changed little in the first epoch, and noise on its weights has not added
    up; and the embeddings of a row in several epochs may reveal more together than any one of them.
    """
    if Phase.RELEASE in job.phases_of(party):
        release = _only_release(job, folder, party)
        return [release, *_of_all_labels(job, folder, party, release)]
    epochs = read_epochs(folder.transcript(party))
    first = next(epochs, None)
    if first is None:
        return []
    epoch, steps = deque(chain([first], epochs), maxlen=1).pop()
    last_release = _release(f"epoch {epoch + 1}, the last recorded", steps, party)
    releases = [last_release, *(_over_epochs(job, folder, party) or _own_mean(folder, party, last_release))]
    if job.parties[party].privacy and first[0] < epoch:
        releases.append(_release(f"epoch {first[0] + 1}, the first recorded", first[1], party))
    return releases


def _over_epochs(job: Job, folder: RunFolder, party: str) -> list[Release]:
    """The mean of all epochs, and several side by side, of the rows that the active party followed."""
    epochs = [epoch for epoch in read_followed(folder.transcript(job.active)) if party in epoch.embeddings]
    held = held_of_run(job, folder.path)
    if len(epochs) < 2:
        return []
    sent = torch.stack([epoch.steps != NO_STEP for epoch in epochs]).all(dim=0)
    if int(sent.sum()) < MIN_ROWS:
        return []
    rows = held.own_numbers(party, epochs[0].rows[sent])
    embeddings = [epoch.embeddings[party].flatten(1)[sent] for epoch in epochs]
    mean = torch.stack(embeddings).mean(dim=0, dtype=torch.float64).float()
    releases = [Release(f"mean of {len(epochs)} releases", rows, mean)]
    number = min(len(epochs), MAX_EPOCHS_SIDE_BY_SIDE, max(2, MAX_WIDTH // mean.shape[1]))
    if job.parties[party].privacy:
        chosen = np.linspace(0, len(epochs) - 1, number).round().astype(int)
        together = torch.cat([embeddings[index] for index in chosen], dim=1)
        releases.append(Release(f"{number} epochs side by side", rows, together))
    return releases


def _own_mean(folder: RunFolder, party: str, last_release: Release) -> list[Release]:
    """The mean of the recorded releases of the rows of the last one, if a row was recorded more than once."""
    _, rows, embeddings = last_release
    total = torch.zeros(embeddings.shape, dtype=torch.float64)
    count = torch.zeros(len(rows))
    for _, recorded in read_epochs(folder.transcript(party)):
        recorded_rows, sent = _joined(recorded, party)
        index = torch.searchsorted(rows, recorded_rows).clamp_max(len(rows) - 1)
        same = rows[index] == recorded_rows
        total.index_add_(0, index[same], sent[same].double())
        count.index_add_(0, index[same], torch.ones(int(same.sum())))
    if int(count.max()) < 2:
        return []
    mean = (total / count[:, None]).float()
    return [Release(f"mean of {round(float(count.mean()), 1):g} releases", rows, mean)]


def _only_release(job: Job, folder: RunFolder, party: str) -> Release:
    loaded = Checkpoints.of_run(job, folder.path, party).read_state(RELEASED_FILE)
    if not loaded:
        raise NotApplicable(UNRECORDED.format(party))
    embeddings = loaded[0]["released"]
    generator = np.random.default_rng([job.train.seed, RandomStream.RELEASED_ROWS])
    sent = torch.nonzero(~embeddings.flatten(1)[:, 0].isnan())[:, 0]  # of a pilot some rows alone
    chosen = sent[torch.from_numpy(np.sort(generator.permutation(len(sent))[: job.parties[party].audit.most_rows]))]
    return Release("the only release", chosen, embeddings[chosen].flatten(1))


def _of_all_labels(job: Job, folder: RunFolder, party: str, release: Release) -> Iterator[Release]:
    """The grades of the same rows for other labels of the job, beside those of this one; the others are read by id."""
    if Phase.LABELS not in job.phases or not grades_rows(job, party):
        return
    whole = folder.path.parents[1] if folder.path.parent.name == "labels" else folder.path
    places = (place / "checkpoint" / party / RELEASED_FILE for place in (whole, *sorted(whole.glob("labels/*"))))
    kept = [stored_tensors(path, "a release", "released", "ids") for path in places if path.exists()]
    if len(kept) < 2:
        return
    own = stored_tensors(folder.path / "checkpoint" / party / RELEASED_FILE, "a release", "ids")["ids"][release.rows]
    beside = []
    for each in kept:
        ids = as_sortable(each["ids"].numpy())
        order = np.argsort(ids)
        at = order[np.searchsorted(ids, as_sortable(own.numpy()), sorter=order).clip(max=len(ids) - 1)]
        there = ids[at] == as_sortable(own.numpy())
        beside.append(each["released"].flatten(1)[torch.from_numpy(at)] * torch.from_numpy(there)[:, None])
    yield Release(f"the releases of {len(kept)} labels", release.rows, torch.cat(beside, dim=1))


def _release(name: str, steps: list[Step], party: str) -> Release:
    """The rows of an epoch, ascending, with their embeddings."""
    rows, embeddings = _joined(steps, party)
    order = rows.argsort()
    return Release(name, rows[order], embeddings[order])


def _joined(steps: list[Step], party: str) -> tuple[Tensor, Tensor]:
    """Rows and embeddings of all steps of an epoch."""
    return torch.cat([step.rows for step in steps]), torch.cat([step.embeddings[party].flatten(1) for step in steps])
