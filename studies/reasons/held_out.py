"""The spectral attack on embeddings of rows that the model was not trained on, beside as many that it was."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from cutlayer.attacks.label.spectral import guess
from cutlayer.audit.leak import fold_auc
from cutlayer.config import Job
from cutlayer.data.streams import RandomStream
from cutlayer.training.folder import RunFolder
from cutlayer.training.trained import Run


def held_out_values(job: Job, folder: RunFolder) -> dict[str, float]:
    """Leak of the embedding and AUC of the model, by the weights that the run ended with.

    Args:
        job: Job of the run, binary, of two parties; the active one has no columns.
        folder: Run folder.

    Returns:
        `test_leak` and `test_auc` on the test rows, as one batch; `train_leak` and `train_auc` on as many training
        rows, drawn at random. Leaks are max(AUC, 1 - AUC).
    """
    run = Run(job, folder)
    (party,) = job.passives
    bottom, store = run.bottom(party), run.stores[party]
    top = run.top({party: bottom.width})
    draw = np.random.default_rng([job.train.seed, RandomStream.DIAGNOSTICS])
    training = torch.from_numpy(draw.permutation(run.training.numpy())[: len(run.reported_rows)])
    values = {}
    for part, rows in (("test", run.reported_rows), ("train", training)):
        with torch.no_grad():
            embeddings: Tensor = bottom(*store.gather(rows))
            logits: Tensor = top({party: embeddings})
        actual = run.leak_labels[rows].numpy()
        scores = guess(embeddings[None], run.class_shares[1]).values[0]
        values[f"{part}_leak"] = fold_auc(float(roc_auc_score(actual, scores.numpy())))
        values[f"{part}_auc"] = float(roc_auc_score(actual, logits.flatten().numpy()))
    return values
