"""Predictions of a departed party alone: a model of its own columns, trained on labels that an attack inferred."""

from __future__ import annotations

import numpy as np
import torch

from cutlayer.attacks.label.base import Scores
from cutlayer.audit.own_columns import MAX_ROUNDS, MAX_ROWS, STRENGTH, sparse_columns
from cutlayer.data.streams import RandomStream
from cutlayer.kernels.fits.logistic import fit_logistic
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.training.trained import Run


def departed_auc(run: Run, party: str, scores: Scores) -> float | None:
    """AUC on held-out rows of a linear model that a party trains alone, on the labels that an attack inferred.

    The rows with the highest scores are taken for positives, as many as the share of positives gives. No label is
    known; only the direction of the scores is granted, which is one bit. The model reads the party's own columns, so it
    goes on predicting for rows that were never aligned, after the party has left.

    Args:
        run: The run, with the party's columns and the truth of its held-out rows.
        party: Name of the passive party.
        scores: The attack's scores (n,), higher for the positive class.

    Returns:
        The AUC on the reported rows, or on `MAX_ROWS` drawn from them; `None` where the party's columns are elsewhere,
        or a class is missing.

    Reference: the threat of model completion (Fu et al., USENIX Security 2022), with inferred labels for known ones.
    """
    positives = round(run.class_shares[1] * len(scores.rows))
    reported = run.reported_rows
    if len(reported) > MAX_ROWS:
        generator = np.random.default_rng([run.job.train.seed, RandomStream.OWN_COLUMNS, len(reported)])
        reported = reported[torch.from_numpy(np.sort(generator.choice(len(reported), MAX_ROWS, replace=False)))]
    truth = run.leak_labels[reported]
    if party not in run.stores or not 0 < positives < len(scores.rows) or truth.all() or not truth.any():
        return None
    inferred = torch.zeros(len(scores.rows), dtype=torch.bool)
    inferred[scores.values.argsort(descending=True, stable=True)[:positives]] = True
    columns = sparse_columns(run.stores[party], torch.cat([scores.rows, reported]))
    model = fit_logistic(columns[: len(inferred)], inferred.numpy().astype(np.int64), STRENGTH, MAX_ROUNDS)
    return roc_auc((columns[len(inferred) :] @ model.weights)[:, 0], truth.numpy())
