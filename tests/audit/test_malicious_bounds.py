"""What a theorem allows holds against malicious partners: the attacks of the audit, at their best, stay below it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from cutlayer.accounting import GaussianRelease
from cutlayer.attacks.malicious import TAMPERINGS, is_by_active_party
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.attacks.malicious.hijack import Hijack
from cutlayer.channel.transcript import read_epochs
from cutlayer.config import Job, validated
from cutlayer.data.store import Store
from cutlayer.kernels.noise.empirical_epsilon import one_run_epsilon
from cutlayer.parties.session.observer import Observer
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.malicious_runs import known_rows
from cutlayer.training.recorder import read_truth
from cutlayer.training.run_ledger import ledger_of
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together
from tests.parties.runs import ACTIVE, KEY, PASSIVES

TELCO = PASSIVES[0]
ROWS, EPOCHS, EPS, CONFIDENCE = 1200, 3, 1.0, 0.99
NOISE = 6.0
"""Standard deviation over the sensitivity, which allows an AUC of about 0.59 over the epochs."""


def coins(seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(2, size=ROWS)


def trained(
    folder: Path,
    attack: str,
    *,
    labels: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
    epochs: int = EPOCHS,
) -> tuple[Job, RunFolder]:
    """A training on canaries: labels and a column of the partner, each row's by a fair coin of its own."""
    draw = np.random.default_rng(2)
    ids = np.arange(ROWS)
    tables = {
        ACTIVE: pa.table({"id": ids, "label": coins(0)}),
        TELCO: pa.table({"id": ids, "coin": 2.0 * coins(1) - 1.0, "number": draw.normal(size=ROWS)}),
    }
    recorded = {"every": "epoch", "rows": 10 * ROWS, "layers": False, "attacks": []}
    parties = {
        ACTIVE: {
            "role": "active",
            "id": "id",
            "label": "label",
            "privacy": labels or {},
            "audit": recorded,
            "features": {"include": "none"},
        },
        TELCO: {"role": "passive", "id": "id", "privacy": features or {}, "audit": recorded},
    }
    train = {
        "epochs": epochs,
        "batch_size": 60,
        "seed": 5,
        "threads": 1,
        "optimizer": {"lr": 0.01},
        "split": {"test": 0.1, "validation": 0.0},
    }
    model = {"bottom": {"kind": "mlp", "hidden": [8, 4]}, "top": {"kind": "mlp", "hidden": [6], "activation": "silu"}}
    job = validated(Job, {"task": "binary", "parties": parties, "model": model, "train": train}, "")
    opened = {name: open_table(job, name, tables) for name in job.parties}
    folder.mkdir(exist_ok=True)
    run = RunFolder(folder)
    tampering: dict[str, Tampering]
    if is_by_active_party(attack):
        tampering = {ACTIVE: Hijack(lambda schedule: known_rows(job, run, schedule))}
    else:
        tampering = {TELCO: TAMPERINGS[attack]()}
    train_together(job, run, opened, Keys(folder / "keys", KEY), Observer(), tampering=tampering)
    return job, run


def probed_labels(folder: RunFolder) -> tuple[Tensor, Tensor]:
    """The side on which each row's gradients lie in the probed epochs, and whether its true label is 1."""
    truth, training = read_truth(folder.transcript(ACTIVE))
    score, line = torch.zeros(len(truth), dtype=torch.float64), torch.zeros(())
    for epoch, steps in read_epochs(folder.transcript(TELCO)):
        for step in steps if epoch % 2 else ():  # with one embedding for all rows, a gradient is one of two vectors
            gradient = step.gradients[TELCO].double()
            longest = gradient[gradient.norm(dim=1).argmax()]
            line = longest if not line.dim() or float(longest @ line) >= 0 else -longest
            score[step.rows] += (gradient @ line).sign()
    return score[training] > 0, truth[training] == 1


@pytest.mark.parametrize("attack", ["probing", "replay", "swap"])
@pytest.mark.parametrize("protected", [True, False])
def test_probes_read_no_more_than_label_dp_allows(tmp_path: Path, protected: bool, attack: str) -> None:
    """Both orientations of the guesses are tried, each with its part of the error; without draws the bound breaks."""
    labels = {"label_dp": {"eps": EPS}} if protected else {}
    _, folder = trained(tmp_path, attack, labels=labels, epochs=2)  # the first is honest
    guesses, truth = probed_labels(folder)
    correct = int((guesses == truth).sum())
    best = max(correct, len(truth) - correct)
    bound = one_run_epsilon(best, len(truth), 1 - (1 - CONFIDENCE) / 2)
    if protected:
        assert bound <= EPS
        assert attack != "probing" or bound > 0.5 * EPS  # the attack is at its best: it reads the draw itself
    else:
        assert bound > (3 * EPS if attack == "probing" else EPS)


@pytest.mark.parametrize("noise", [NOISE, 1e-3])
def test_a_hijack_rebuilds_no_more_than_dp_embedding_allows(tmp_path: Path, noise: float) -> None:
    features = {"dp_embedding": {"clip": 1.0, "noise_multiplier": noise}}
    job, folder = trained(tmp_path, "hijack", features=features)
    value, low = rebuilt_coin(job, folder)
    (event,) = (e.event for e in ledger_of(job).entries if isinstance(e.event, GaussianRelease))
    allowed = torch.special.ndtr(torch.tensor(event.releases.training**0.5 / noise / 2**0.5)).item()
    assert low <= allowed
    if noise < 1:
        assert value > 0.95  # without noise the same attacker has the column
    else:
        assert allowed < 0.65


def rebuilt_coin(job: Job, folder: RunFolder) -> tuple[float, float]:
    """AUC of the coins of rows that the hijacker does not know, from all their releases; and its lower bound."""
    total: dict[int, Tensor] = {}
    for _, steps in read_epochs(folder.transcript(TELCO)):
        for step in steps:
            for row, sent in zip(step.rows.tolist(), step.embeddings[TELCO].double(), strict=True):
                total[row] = total.get(row, torch.zeros(())) + sent
    rows = sorted(total)
    x = torch.stack([total[row] for row in rows])
    x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    y = Store.open(folder.data(TELCO)).gather(torch.tensor(rows))[1][:, 0] > 0
    known = torch.zeros(len(rows), dtype=torch.bool)
    known[::2] = True
    fitted = torch.linalg.lstsq(x[known], y[known].double()[:, None]).solution
    scores, truth = (x @ fitted)[~known, 0], y[~known]
    value = roc_auc(scores, truth)
    n = min(int(truth.sum()), int((~truth).sum()))
    return value, value - (np.log(1 / (1 - CONFIDENCE)) / (2 * n)) ** 0.5
