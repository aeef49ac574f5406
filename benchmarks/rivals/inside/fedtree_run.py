"""FedTree's boosted trees with columns divided, in its simulation of all parties; run by `python -m benchmarks.rivals`.

Settings are those of the experiments in its documentation. Its simulation divides the columns itself, and shows no
message: the way of each row through each tree stands for the nodes that the label owner gets back. The library needs
`libntl.so.44`, as of Debian's libntl44.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
from fedtree import FLClassifier


def main() -> None:
    """Fit one model: the two files, the settings as JSON, and the file of results."""
    own, other = (np.load(path) for path in sys.argv[1:3])
    settings, out = json.loads(sys.argv[3]), Path(sys.argv[4])
    train, columns = own["train"], np.hstack([own["columns"], other["columns"]]).astype(float)
    used, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    model = FLClassifier(
        n_parties=2, mode="vertical", partition_mode="vertical", privacy_tech=settings["privacy"],
        n_trees=settings["trees"], max_depth=6, learning_rate=0.1, max_num_bin=255, objective="binary:logistic",
        verbose=0, seed=settings["seed"],
    )  # fmt: skip
    model.fit(columns[train], own["labels"].astype(float))
    scores = model.predict_proba(columns)[:, 1]
    now = resource.getrusage(resource.RUSAGE_SELF)
    cpu, wall = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, time.perf_counter() - began
    leaves = np.asarray(model.predict_leaf(columns[train])).reshape(-1, len(train)).T  # the library's are by tree
    np.savez(out, scores=scores, wall=wall, cpu=cpu, leaves=leaves)


if __name__ == "__main__":
    main()
