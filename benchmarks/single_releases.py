"""`python -m benchmarks.single_releases --data DIR`: published single releases of a partner's columns under attack.

The methods are written here from their papers, on the encoded columns of the partner. For each the label owner's AUC
with the release, and what `inversion` or `best_guess` reads of the columns with 512 known rows. Results are appended to
a file, one line for each data set, seed and release; what is there is not measured again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from benchmarks.cases import append, parser_of
from benchmarks.graded_rows import Rows
from benchmarks.rivals.reads import columns_read
from benchmarks.utility.__main__ import lines_of
from benchmarks.utility.datasets import load
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer_sweep.seed_mean import seed_mean_of

RESULTS = Path(__file__).parent / "results" / "single_releases.jsonl"
DATA = ("adult", "bank", "credit")
ROWS, EPOCHS, BATCH, RATE = 4_000, 25, 128, 1e-3
HIDDEN, WIDTH, NARROW = 64, 32, 8
TEMPERATURE, CORRUPTED = 1.0, 0.6
"""Of SCARF, as published."""

Floats = npt.NDArray[np.floating[Any]]
Loss = Callable[[Tensor, Tensor], Tensor]


def network(*widths: int) -> nn.Sequential:
    """Linear layers with a rectifier between them."""
    layers: list[nn.Module] = []
    for enter, leave in pairwise(widths):
        layers += [nn.Linear(enter, leave), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def descend(modules: Sequence[nn.Module], rows: int, loss: Callable[[Tensor], Tensor]) -> None:
    """Adam on mini-batches; the loss is of row numbers."""
    optimiser = torch.optim.Adam([each for module in modules for each in module.parameters()], RATE)
    for _ in range(EPOCHS):
        for chosen in torch.split(torch.randperm(rows), BATCH):
            if len(chosen) == BATCH:
                optimiser.zero_grad()
                loss(chosen).backward()  # type: ignore[no-untyped-call]
                optimiser.step()


def autoencoder(x: Tensor, _: Tensor, columns: int) -> nn.Module:
    """The encoder of an autoencoder whose latent is as wide as the table has columns (APC-VFL; SiloFuse)."""
    encoder, decoder = network(x.shape[1], HIDDEN, columns), network(columns, HIDDEN, x.shape[1])
    descend([encoder, decoder], len(x), lambda at: (decoder(encoder(x[at])) - x[at]).square().mean())
    return encoder


def contrastive(x: Tensor, _labels: Tensor, _columns: int) -> nn.Module:
    """SCARF (Bahri et al. 2022): a row and its corrupted copy agree; the head is thrown away."""
    encoder, head = network(x.shape[1], HIDDEN, WIDTH), network(WIDTH, WIDTH, WIDTH)

    def loss(at: Tensor) -> Tensor:
        others = x[torch.randint(len(x), x[at].shape), torch.arange(x.shape[1])]
        copy = torch.where(torch.rand_like(x[at]) < CORRUPTED, others, x[at])
        first, second = (nn.functional.normalize(head(encoder(each)), dim=1) for each in (x[at], copy))
        return nn.functional.cross_entropy(first @ second.T / TEMPERATURE, torch.arange(len(at)))

    descend([encoder, head], len(x), loss)
    return encoder


class _Sphere(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """Rows of length one."""
        out: Tensor = nn.functional.normalize(x, dim=1)
        return out


def noise_targets(x: Tensor, _labels: Tensor, _columns: int) -> nn.Module:
    """FedOnce (Wu, Li and He 2022): each row learns a target drawn on the sphere, reassigned within each batch."""
    encoder = nn.Sequential(network(x.shape[1], HIDDEN, WIDTH), _Sphere())
    targets = nn.functional.normalize(torch.randn(len(x), WIDTH), dim=1)

    def loss(at: Tensor) -> Tensor:
        sent = encoder(x[at])
        with torch.no_grad():
            _, order = linear_sum_assignment(-(sent @ targets[at].T).numpy())
            targets[at] = targets[at][torch.from_numpy(order)]
        missed: Tensor = (sent - targets[at]).square().sum(dim=1).mean()
        return missed

    descend([encoder], len(x), loss)
    return encoder


def _supervised(width: int) -> Callable[[Tensor, Tensor, int], nn.Module]:
    def fitted(x: Tensor, labels: Tensor, _columns: int) -> nn.Module:
        encoder, head = network(x.shape[1], HIDDEN, width), nn.Linear(width, 1)

        def loss(at: Tensor) -> Tensor:
            logits = head(torch.relu(encoder(x[at])))[:, 0]
            return nn.functional.binary_cross_entropy_with_logits(logits, labels[at])

        descend([encoder, head], len(x), loss)
        return encoder

    return fitted


def untrained(x: Tensor, _labels: Tensor, _columns: int) -> nn.Module:
    """A network of random weights."""
    return network(x.shape[1], HIDDEN, WIDTH)


class _Directions(nn.Module):
    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, x: Tensor) -> Tensor:
        """The components."""
        return torch.matmul(x, self.weights)


def _components(share: float) -> Callable[[Tensor, Tensor, int], nn.Module]:
    def fitted(x: Tensor, _labels: Tensor, _columns: int) -> nn.Module:
        directions = torch.linalg.svd(x - x.mean(dim=0), full_matrices=False)[2]
        return _Directions(directions[: max(1, round(share * x.shape[1]))].T)

    return fitted


RELEASES: Mapping[str, Callable[[Tensor, Tensor, int], nn.Module]] = {
    "all columns": lambda *_: nn.Identity(),
    "SVD, half of the components": _components(0.5),
    "PCA, an eighth": _components(0.125),
    "autoencoder (APC-VFL, SiloFuse)": autoencoder,
    "SCARF": contrastive,
    "noise targets (FedOnce)": noise_targets,
    "untrained network": untrained,
    "network of labels, width 32 (JAST)": _supervised(WIDTH),
    "network of labels, width 8 (VEIL)": _supervised(NARROW),
}
"""Releases by name: from the columns and labels of training rows, and the number of columns of the table."""


def measured(rows: Rows, release: str, columns: int, seed: int) -> dict[str, Any]:
    """The AUC of boosting on own columns and the release, and what is read of it.

    For the autoencoder also the AUC where the label owner predicts the latent of rows that it scores (APC-VFL's
    distillation), so that no partner takes part in prediction.
    """
    x, labels, train = rows.partner.matrix, rows.labels, rows.training
    mean, scale = x[train].mean(axis=0), np.maximum(x[train].std(axis=0), 0.05)
    scaled = torch.from_numpy((x - mean) / scale).float()
    torch.manual_seed(seed)
    encoder = RELEASES[release](scaled[train], torch.from_numpy(labels[train]).float(), columns)
    with torch.no_grad():
        sent = encoder(scaled).double().numpy()
    own, test = rows.bank.matrix, np.setdiff1d(np.arange(len(labels)), train)
    line: dict[str, Any] = {"auc": _auc(np.hstack([own, sent]), labels, train, test), "sent": sent.shape[1]}
    if release.startswith("autoencoder"):
        distilled = Ridge(1.0).fit(own[train], sent[train]).predict(own)
        line["alone"] = _auc(np.hstack([own, distilled]), labels, train, test)
    if release == "all columns":
        line["own"] = _auc(own, labels, train, test)
    return line | {"columns": columns_read(rows, train, sent[train], seed)}


def _auc(x: Floats, labels: npt.NDArray[np.int64], train: Any, test: Any) -> float:
    model = HistGradientBoostingClassifier(random_state=0, max_iter=60).fit(x[train], labels[train])
    return float(roc_auc(model.predict_proba(x[test])[:, 1], labels[test] == 1))


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The page's table: AUC, and the mean and largest R² of a column, for each data set."""
    names = [*dict.fromkeys(line["data"] for line in lines)]
    yield "| release | " + " | ".join(f"{name}: AUC | R² (best column)" for name in names) + " |"
    yield "|---" * (1 + 2 * len(names)) + "|"
    owns = [[line["own"] for line in lines if line["data"] == name and "own" in line] for name in names]
    yield "| nothing | " + " | ".join(f"{seed_mean_of(own) or '–'} | –" for own in owns) + " |"
    for release in RELEASES:
        cells = []
        for name in names:
            some = [line for line in lines if line["data"] == name and line["release"] == release]
            reads = [line["columns"] for line in some]
            if some:
                r2 = f"{fmean(each['r2'] for each in reads):.3f} ({fmean(each['best column'] for each in reads):.3f})"
                cells += [str(seed_mean_of(line["auc"] for line in some)), r2]
            else:
                cells += ["–", "–"]
        yield f"| {release} | {' | '.join(cells)} |"
    alone = [f"{line['data']} {line['alone']:.3f}" for line in lines if "alone" in line]
    yield f"\nThe autoencoder's latent predicted from own columns (distillation): {', '.join(alone)}."


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the file of results, and print the table."""
    given = parser_of("single_releases", __doc__, RESULTS, DATA, ROWS).parse_args(arguments)
    lines = lines_of(given.results)
    done = {line["case"] for line in lines}
    for seed in range(given.seeds):
        for name in given.tables:
            data = load(name, given.data).drawn(given.rows)
            rows = Rows.of(data, seed)
            for release in RELEASES:
                case = f"{name} {given.rows} {seed} {release}"
                if case not in done:
                    about = {"case": case, "data": name, "rows": given.rows, "seed": seed, "release": release}
                    found = measured(rows, release, data.partner.shape[1], seed)
                    append(lines, {**about, **found}, given.results)
    sys.stdout.write("\n".join(table(lines)) + "\n")


if __name__ == "__main__":
    main()
