"""The embeddings of the rows that one party's record of its messages holds, as an attacker would read them."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cutlayer.channel.transcript import Step, read_epochs
from cutlayer.config import Job
from cutlayer.data.streams import RandomStream
from cutlayer.errors import NotApplicable
from cutlayer.parties.checkpoint import Checkpoints
from cutlayer.training.folder import RunFolder

UNRECORDED = "nothing that {0} sent was recorded; set parties.{0}.audit.every to epoch or end"


class Release(NamedTuple):
    """One release of some rows.

    Attributes:
        name: Which release of each row it is.
        rows: Row numbers, int64 (n,).
        embeddings: Embeddings as sent, or a mean of them, float32 (n, width).
    """

    name: str
    rows: Tensor
    embeddings: Tensor


def released(job: Job, folder: RunFolder, party: str) -> list[Release]:
    """Releases of a party from its own record: the last recorded one, the mean of a row's releases, the first recorded.

    The second is what an attacker makes of noise that is drawn anew for every release. It is there where some row was
    recorded more than once. Both are of the same rows, and the epoch is fixed beforehand: the last. Of a party that
    releases once about `audit.rows` of its rows are taken, at random.

    The first recorded release, of other rows, is the third where the party has protections: one that acts on the
    training of the bottom model has changed little by then, and noise on its weights has not added up.
    """
    if job.train.releases_once(party):
        return [_only_release(job, folder, party)]
    path = folder.transcript(party)
    epochs = read_epochs(path)
    first = next(epochs, None)
    if first is None:
        return []
    epoch, steps = deque(chain([first], epochs), maxlen=1).pop()
    last_release = _release(f"epoch {epoch + 1}, the last recorded", steps, party)
    _, rows, embeddings = last_release
    total, count = torch.zeros(embeddings.shape, dtype=torch.float64), torch.zeros(len(rows))
    for _, recorded in read_epochs(path):
        recorded_rows, sent = _joined(recorded, party)
        index = torch.searchsorted(rows, recorded_rows).clamp_max(len(rows) - 1)
        same = rows[index] == recorded_rows
        total.index_add_(0, index[same], sent[same].double())
        count.index_add_(0, index[same], torch.ones(int(same.sum())))
    releases = [last_release]
    if int(count.max()) > 1:
        mean = (total / count[:, None]).float()
        releases.append(Release(f"mean of {round(float(count.mean()), 1):g} releases", rows, mean))
    if job.parties[party].privacy and first[0] < epoch:
        releases.append(_release(f"epoch {first[0] + 1}, the first recorded", first[1], party))
    return releases


def _only_release(job: Job, folder: RunFolder, party: str) -> Release:
    loaded = Checkpoints(folder.path / "checkpoint" / party, party, job.digest()).load_release()
    if not loaded:
        raise NotApplicable(UNRECORDED.format(party))
    embeddings = loaded[0]["released"]
    generator = np.random.default_rng([job.train.seed, RandomStream.RELEASED_ROWS])
    chosen = torch.from_numpy(np.sort(generator.permutation(len(embeddings))[: job.parties[party].audit.rows]))
    return Release("the only release", chosen, embeddings[chosen].flatten(1))


def _release(name: str, steps: list[Step], party: str) -> Release:
    """The rows of an epoch, ascending, with their embeddings."""
    rows, embeddings = _joined(steps, party)
    order = rows.argsort()
    return Release(name, rows[order], embeddings[order])


def _joined(steps: list[Step], party: str) -> tuple[Tensor, Tensor]:
    """Rows and embeddings of all steps of an epoch."""
    return torch.cat([step.rows for step in steps]), torch.cat([step.embeddings[party].flatten(1) for step in steps])
