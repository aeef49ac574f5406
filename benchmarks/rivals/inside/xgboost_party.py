"""The server, or one of two parties, of XGBoost's federated plugin with columns divided, which NVFlare relays.

Run by `python -m benchmarks.rivals`. The label owner is rank 0; parameters are the defaults of NVFlare's recipe
`XGBVerticalRecipe`, but for one thread.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import xgboost
from xgboost import federated

PARAMETERS = {
    "max_depth": 8, "eta": 0.1, "objective": "binary:logistic", "eval_metric": "auc", "tree_method": "hist",
    "nthread": 1,
}  # fmt: skip
ROUNDS, PATIENCE = 100, 3


def serve(port: int) -> None:
    """Relay the messages of both parties."""
    federated.run_federated_server(n_workers=2, port=port)


def party(rank: int, path: str, port: int, out: Path) -> None:
    """Train and score; rows of a tenth of the training rows decide when to stop."""
    before, began, given = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter(), np.load(path)
    train = given["train"]
    order = np.random.default_rng(0).permutation(len(train))
    stop, fit = train[order[: len(train) // 10]], train[order[len(train) // 10 :]]
    labels = np.zeros(len(given["columns"]), np.float32)
    if rank == 0:
        labels[train] = given["labels"]
    about = {"dmlc_communicator": "federated", "federated_server_address": f"127.0.0.1:{port}"}
    with xgboost.collective.CommunicatorContext(**about, federated_world_size=2, federated_rank=rank):

        def matrix(rows: np.ndarray) -> xgboost.DMatrix:
            truth = {"label": labels[rows]} if rank == 0 else {}
            mode = xgboost.core.DataSplitMode.COL
            return xgboost.DMatrix(given["columns"][rows], data_split_mode=mode, **truth)

        sets = [(matrix(stop), "eval")]
        model = xgboost.train(
            PARAMETERS, matrix(fit), ROUNDS, evals=sets, early_stopping_rounds=PATIENCE, verbose_eval=False
        )
        scores = model.predict(matrix(np.arange(len(labels))), output_margin=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    trees = model.get_dump(dump_format="json")
    np.savez(
        out, scores=scores, wall=time.perf_counter() - began, cpu=cpu, rows=fit,
        trees=json.dumps([json.loads(each) for each in trees]),
    )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        party(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
