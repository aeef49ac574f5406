"""Hashed logistic regression on the rows of a Criteo job: what a linear model reaches with all columns in one place.

    python examples/hashed_logistic.py examples/criteo-small.yaml

Every column becomes one hashed token per row (numbers as floor(log(1 + x)^2)); the split is the job's own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from cutlayer.config.load import load_job
from cutlayer.data.sources import open_source
from cutlayer.data.split import split_rows

BUCKETS = 2**20


def buckets(name: str, column: pa.ChunkedArray) -> np.ndarray:
    """Bucket of each row's value in one column, int64 (n,)."""
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f" or values.dtype.kind == "i":
        binned = np.floor(np.log1p(np.maximum(values.astype(np.float64), 0)) ** 2)
        words = np.where(np.isnan(values), "none", binned.astype(str))
    else:
        words = np.where([value is None for value in values], "none", values).astype(str)
    distinct, place = np.unique(words, return_inverse=True)
    seed = np.frombuffer(name.ljust(8, "_").encode()[:8], dtype=np.uint64)[0]
    hashes = np.array([hash_of(word, int(seed)) for word in distinct])
    return hashes[place]


def hash_of(word: str, seed: int) -> int:
    """FNV-1a of a word, in `BUCKETS`."""
    value = seed ^ 0xCBF29CE484222325
    for byte in word.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return (value ^ (value >> 32)) % BUCKETS


def main() -> None:
    """Fit on the training rows, print the test metrics as one JSON line."""
    job = load_job(Path(sys.argv[1]))
    party = job.parties[job.passives[0]]
    include = [name for name in party.table.columns if name != "label"]
    table = open_source(party.table, "publisher").read(["label", *include], party.features.categorical)
    labels = table["label"].to_numpy().astype(np.int64)
    columns = np.stack([buckets(name, table[name]) for name in include], axis=1)
    rows = np.repeat(np.arange(len(labels)), columns.shape[1])
    features = sparse.csr_matrix((np.ones(columns.size), (rows, columns.ravel())), shape=(len(labels), BUCKETS))
    split = split_rows(len(labels), job.train.split, job.train.seed)
    model = LogisticRegression(C=0.05, max_iter=200).fit(features[split.train], labels[split.train])
    predicted = model.predict_proba(features[split.test])[:, 1]
    truth = labels[split.test]
    figures = {"auc": roc_auc_score(truth, predicted), "log_loss": log_loss(truth, predicted), "rows": len(truth)}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
