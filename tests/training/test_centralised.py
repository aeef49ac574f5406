"""Split training is centralised training cut in two: the same losses and gradients as a plain PyTorch loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from cutlayer.channel import Kind
from cutlayer.config import Job
from cutlayer.consent import allowed
from cutlayer.data.batches import Schedule
from cutlayer.data.ids import row_digests
from cutlayer.data.split import split_rows
from cutlayer.data.store import Store
from cutlayer.models import Inputs, build_bottom, build_top, modules_of
from tests.parties.runs import ACTIVE, DROPOUT, KEY, PASSIVES, record, run, tables, unaudited_job

CLASSES = {"binary": 1, "multiclass": 3, "regression": 1}


def fixed(module: nn.Module, seed: int) -> nn.Module:
    """Weights that depend on nothing but the seed."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data = 0.4 * torch.randn(parameter.shape, generator=generator)
    return module


class FixedBottom(nn.Module):
    """Numbers to an embedding; the weights follow from the number of columns."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.width = 4
        self.layers = fixed(nn.Sequential(nn.Linear(inputs.numbers, 6), nn.Tanh(), nn.Linear(6, 4)), inputs.numbers)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        result: Tensor = self.layers(numbers)
        return result


class FixedTop(nn.Module):
    """Embeddings side by side to logits."""

    def __init__(self, widths: Mapping[str, int], outputs: int) -> None:
        super().__init__()
        total = sum(widths.values())
        self.layers = fixed(nn.Sequential(nn.Linear(total, 5), nn.ReLU(), nn.Linear(5, outputs)), 100 + total)

    def forward(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        result: Tensor = self.layers(torch.cat(list(embeddings.values()), dim=1))
        return result


BOTTOM = {"kind": "python", "path": f"{__name__}:FixedBottom"}
TOP = {"kind": "python", "path": f"{__name__}:FixedTop"}


class Plain:
    """The same training in one place, from the raw tables, without a line of the package's training code."""

    def __init__(self, job: Job, given: Mapping[str, pa.Table], *, active_features: bool) -> None:
        common = set.intersection(*(set(table["id"].to_pylist()) for table in given.values()))
        digests = {key: row_digests(pa.chunked_array([[key]]), "t").tobytes() for key in common}
        ordered = sorted(common, key=lambda key: digests[key])
        split = split_rows(len(ordered), job.train.split, job.train.seed)
        self.schedule = Schedule(split.train, job.train.batch_size, job.train.seed)
        self.features: dict[str, Tensor] = {}
        for name, table in given.items():
            place = {key: row for row, key in enumerate(table["id"].to_pylist())}
            rows = [place[key] for key in ordered]
            raw = np.stack([table[c].to_numpy()[rows] for c in table.column_names if c[-1] in "012"], axis=1)
            mean, spread = raw[split.train].mean(axis=0), raw[split.train].std(axis=0)
            if name != ACTIVE or active_features:
                self.features[name] = torch.from_numpy((raw - mean) / spread).float()
            if name == ACTIVE:
                self.labels = self._labels(job, table["label"].to_numpy()[rows], split.train)
        self.bottoms = {name: FixedBottom(Inputs((), x.shape[1])) for name, x in self.features.items()}
        self.top = FixedTop(dict.fromkeys(self.features, 4), CLASSES[job.task])
        modules = nn.ModuleList([*self.bottoms.values(), self.top])
        self.optimizer = torch.optim.Adam(modules.parameters(), lr=job.train.optimizer.lr)
        self.task = job.task

    @staticmethod
    def _labels(job: Job, raw: Any, train: Any) -> Tensor:
        if job.task == "binary":
            return torch.from_numpy((raw == "yes").astype(np.float32))
        if job.task == "multiclass":
            return torch.from_numpy(raw.astype(np.int64))
        return torch.from_numpy((raw - raw[train].mean()) / raw[train].std()).float()

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.task == "binary":
            return functional.binary_cross_entropy(torch.sigmoid(logits[:, 0]), labels)
        if self.task == "multiclass":
            return functional.nll_loss(functional.log_softmax(logits, dim=1), labels)
        return ((logits[:, 0] - labels) ** 2).mean()

    def train(self, epochs: int) -> tuple[list[float], list[Tensor]]:
        """Losses of all steps, and the gradient of each with respect to the passive party's embedding."""
        losses, gradients = [], []
        for epoch in range(epochs):
            for rows in self.schedule.epoch(epoch):
                embeddings = {name: self.bottoms[name](torch.empty(0), x[rows]) for name, x in self.features.items()}
                for embedding in embeddings.values():
                    embedding.retain_grad()
                loss = self.loss(self.top(embeddings), self.labels[rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
                crossed = embeddings[PASSIVES[0]].grad
                assert crossed is not None
                gradients.append(crossed)
        return losses, gradients


@pytest.mark.parametrize("task", CLASSES)
@pytest.mark.parametrize("active_features", [True, False])
def test_losses_and_cut_gradients_equal_a_plain_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, active_features: bool
) -> None:
    recorded = record(monkeypatch)
    given = {name: table.drop_columns([f"{name}_kind"]) for name, table in tables(task).items()}
    job = unaudited_job(task, active_features=active_features, bottom=BOTTOM, top=TOP, epochs=3)
    split = run(job, given, tmp_path, key=KEY).active.step_losses
    losses, gradients = Plain(job, given, active_features=active_features).train(3)
    assert split == pytest.approx(losses, abs=1e-6)
    assert losses[-1] < losses[0]
    crossed = [message.tensors["gradient"] for message in recorded if message.kind == Kind.GRADIENT]
    assert len(crossed) == len(gradients) == len(losses)
    for sent, expected in zip(crossed, gradients, strict=True):
        torch.testing.assert_close(sent, expected, atol=1e-6, rtol=1e-4)
        assert sent.abs().max() > 1e-5


@pytest.mark.parametrize("keep", ["best", "last"])
@pytest.mark.parametrize("bottom", [DROPOUT, {"kind": "mlp", "hidden": [8, 6], "dropout": 0.5}], ids=["python", "mlp"])
def test_held_out_logits_are_those_of_the_kept_weights_without_dropout(
    tmp_path: Path, keep: str, bottom: dict[str, Any]
) -> None:
    """Rebuilt from the checkpoints of all parties: the figures of a run are of the models that it leaves behind."""
    job = unaudited_job(passives=2, bottom=bottom, keep=keep, epochs=3, optimizer={"lr": 0.05})
    active = run(job, tables(passives=2), tmp_path).active
    name = "best" if keep == "best" else "epoch-0002"
    halves = {party: load_file(tmp_path / "checkpoint" / party / f"{name}.safetensors") for party in job.parties}
    rows, embeddings = active.split.part("test"), {}
    for party, half in halves.items():
        store = Store.open(tmp_path / "data" / party)
        with allowed(*modules_of(job.model.model_dump())):
            model = build_bottom(bottom, store.columns.inputs)
        model.load_state_dict(_under("module/bottom.", half))
        embeddings[party] = model.eval()(*store.gather(rows))
    top = build_top(job.model.top, {party: e.shape[1] for party, e in embeddings.items()}, 1)
    top.load_state_dict(_under("module/top.", halves[ACTIVE]))
    assert torch.equal(top(embeddings), active.logits)
    assert active.part == "test"


def _under(prefix: str, half: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in half.items() if key.startswith(prefix)}
