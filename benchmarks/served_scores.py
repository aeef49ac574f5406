"""`python -m benchmarks.served_scores --data DIR`: a partner's columns from the scores of a model of all columns.

The label owner has the score of each row, its own columns, and the weights of the model: the setting of Luo et al.,
Feature inference attack on model predictions in vertical federated learning (ICDE 2021, arXiv 2010.10152), in which it
knows no row of the partner. `equations` solves for the columns (section IV-A), `network` trains their generative
regression network (section V). Beside them stands `best_guess`, which knows 512 rows and no weights. Results are
appended to a file, one line for each data set, seed and model; what is there is not measured again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from benchmarks.cases import append, parser_of
from benchmarks.graded_rows import Rows
from benchmarks.rivals.reads import columns_read
from benchmarks.single_releases import BATCH, descend, network
from benchmarks.utility.__main__ import lines_of
from benchmarks.utility.datasets import load
from cutlayer.problem.metrics.roc import roc_auc

RESULTS = Path(__file__).parent / "results" / "served_scores.jsonl"
DATA, MODELS = ("adult", "bank", "credit"), ("linear", "network")
ROWS = 4_000
SPREAD = 0.1
"""Weight of the penalty on a generator whose columns vary more than standardised ones do."""

Floats = npt.NDArray[np.floating[Any]]


def equations(weights: Floats, own: Floats, logits: Floats, bias: float) -> Floats:
    """The columns of least norm that explain each logit of a linear model; exact where the partner has one column.

    Args:
        weights: Weights of the label owner's columns, then of the partner's, (a + b,).
        own: The label owner's columns, (n, a).
        logits: Logit of each row, (n,).
        bias: Intercept.

    Returns:
        The partner's columns, (n, b).
    """
    mine, theirs = weights[: own.shape[1]], weights[own.shape[1] :]
    missing = logits - own @ mine - bias
    return np.asarray(missing[:, None] * theirs / (theirs @ theirs))


def generated(model: nn.Module, own: Tensor, logits: Tensor, width: int) -> Tensor:
    """The mean of what a generator makes of each row, which was trained to explain all logits.

    Args:
        model: From all columns, (n, a + b), to logits, (n, 1).
        own: The label owner's columns, (n, a).
        logits: Logit of each row, (n,).
        width: Number of the partner's columns.
    """
    generator = network(own.shape[1] + 1 + width, 64, width)

    def made(at: Tensor) -> Tensor:
        noise = torch.randn(len(at), width)
        out: Tensor = generator(torch.cat([own[at], logits[at, None], noise], dim=1))
        return out

    def loss(at: Tensor) -> Tensor:
        columns = made(at)
        missed: Tensor = (model(torch.cat([own[at], columns], dim=1))[:, 0] - logits[at]).square().mean()
        return missed + SPREAD * torch.relu(columns.var(dim=0) - 1).mean()

    descend([generator], len(own), loss)
    with torch.no_grad():
        return torch.stack([made(torch.arange(len(own))) for _ in range(10)]).mean(dim=0)


def measured(rows: Rows, kind: str, seed: int) -> dict[str, Any]:
    """The model's AUC, and what each attack reads of the rows that the model was not fitted to and of all others."""
    torch.manual_seed(seed)
    train = rows.training
    test = np.setdiff1d(np.arange(len(rows.labels)), train)
    own, theirs = (_standardised(side.matrix, train) for side in (rows.bank, rows.partner))
    x = np.hstack([own, theirs])
    model = _linear(x[train], rows.labels[train]) if kind == MODELS[0] else _perceptron(x[train], rows.labels[train])
    with torch.no_grad():
        logits = model(torch.from_numpy(x).float())[:, 0].double().numpy()
    line: dict[str, Any] = {"auc": roc_auc(logits[test], rows.labels[test] == 1)}
    if isinstance(model, nn.Linear):
        weights = model.weight[0].detach().double().numpy()
        line["equations"] = _r2(equations(weights, own, logits, float(model.bias.detach())), theirs)
    found = generated(model, torch.from_numpy(own).float(), torch.from_numpy(logits).float(), theirs.shape[1])
    line["network"] = _r2(found.double().numpy(), theirs)
    for name, seen in (("own columns", None), ("best_guess", logits[train, None])):
        line[name] = columns_read(rows, train, seen, seed)
    return line


def _standardised(matrix: Floats, train: npt.NDArray[np.int64]) -> Floats:
    return np.asarray((matrix - matrix[train].mean(axis=0)) / np.maximum(matrix[train].std(axis=0), 0.05))


def _linear(x: Floats, labels: npt.NDArray[np.int64]) -> nn.Module:
    fitted, model = LogisticRegression(max_iter=1000).fit(x, labels), nn.Linear(x.shape[1], 1)
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(fitted.coef_))
        model.bias.copy_(torch.from_numpy(fitted.intercept_))
    return model


def _perceptron(x: Floats, labels: npt.NDArray[np.int64]) -> nn.Module:
    inputs, truth, model = torch.from_numpy(x).float(), torch.from_numpy(labels).float(), network(x.shape[1], 32, 1)

    def loss(at: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(model(inputs[at])[:, 0], truth[at])

    descend([model], len(x) // BATCH * BATCH, loss)
    return model


def _r2(found: Floats, truth: Floats) -> dict[str, float]:
    """Mean and largest R² of the columns that vary, each against the mean."""
    varied = truth.std(axis=0) > 1e-9
    errors = np.square(found - truth)[:, varied].mean(axis=0) / truth[:, varied].var(axis=0)
    return {"r2": float(1 - errors.mean()), "best column": float(1 - errors.min()), "read": int((errors < 0.5).sum())}


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The page's table."""
    yield "| data set | model | AUC | equations | network | own columns, 512 rows | with the score, 512 rows |"
    yield "|---" * 7 + "|"
    for line in lines:
        kinds = ("equations", "network", "own columns", "best_guess")
        cells = [f"{line[k]['r2']:.3f} ({line[k]['best column']:.3f})" if k in line else "–" for k in kinds]
        yield f"| {line['data']} | {line['model']} | {line['auc']:.3f} | " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the file of results, and print the table."""
    given = parser_of("served_scores", __doc__, RESULTS, DATA, ROWS).parse_args(arguments)
    lines = lines_of(given.results)
    done = {line["case"] for line in lines}
    for seed, name, kind in product(range(given.seeds), given.tables, MODELS):
        case = f"{name} {given.rows} {seed} {kind}"
        if case in done:
            continue
        found = measured(Rows.of(load(name, given.data).drawn(given.rows), seed), kind, seed)
        about = {"case": case, "data": name, "rows": given.rows, "seed": seed, "model": kind}
        append(lines, {**about, **found}, given.results)
    sys.stdout.write("\n".join(table(lines)) + "\n")


if __name__ == "__main__":
    main()
