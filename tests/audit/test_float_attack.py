"""The attack on floating point over a whole run: single releases, read off the wire by who knows the bottom model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cutlayer.channel import Kind
from cutlayer.config import Job, validated
from cutlayer.kernels.noise import lattice
from cutlayer.kernels.noise.aes import standard_normal
from cutlayer.kernels.noise.lattice import lattice_step
from cutlayer.kernels.rows.row_norms import clip_rows
from cutlayer.protections import dp_embedding
from cutlayer.protections.contract.views import PassiveView
from tests.parties.runs import PASSIVES, raw_job, record, run, tables
from tests.protections.float_attack import impossible

TELCO, WIDTH, CLIP = PASSIVES[0], 64, 1.0
OPTIONS = {"clip": CLIP, "epsilon": 8.0, "delta": 1e-5}


def single_release() -> Job:
    """A job whose passive party releases each row once, from a bottom model that was not fitted."""
    bottom = {"kind": "mlp", "hidden": [32, WIDTH], "cut": "linear"}
    raw = raw_job(bottom=bottom, epochs=1, release={TELCO: "once"})
    raw["parties"][TELCO]["privacy"] = {"dp_embedding": OPTIONS}
    return validated(Job, raw, "")


def in_floating_point(rows: Tensor, sigma: float, bound: float, key: bytes) -> Tensor:
    """The mechanism without a lattice."""
    return torch.add(rows, standard_normal(key, b"float", tuple(rows.shape)), alpha=sigma)


def impossible_floats(released: Tensor, candidates: Tensor, sigma: float) -> Tensor:
    """Entries of a release (width,) that no float32 noise gives from a candidate, counted for each (m, width)."""
    return impossible(released, candidates, sigma).sum(1)


def impossible_steps(released: Tensor, candidates: Tensor, sigma: float) -> Tensor:
    """Entries that are not whole steps from a candidate's lattice point, counted for each (m, width)."""
    step = lattice_step(sigma, CLIP)
    whole = (released.double() - torch.trunc(candidates.double() / step) * step) / step
    return (whole != whole.round()).sum(1)


def attacked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[float, float]]:
    """Of each test, the share of rows that alone have fewest impossible entries, and the share with any at all.

    The attacker holds the messages, sigma and the clipped embeddings of all rows of a message, to match them up.
    """
    batches, sigmas = list[Tensor](), list[float]()
    original = dp_embedding.DPEmbedding.embedding_out

    def watched(self: dp_embedding.DPEmbedding, e: Tensor, view: PassiveView) -> Tensor:
        batches.append(clip_rows(e.detach(), CLIP))
        sigmas.append(self._sigma)
        return original(self, e, view)

    monkeypatch.setattr(dp_embedding.DPEmbedding, "embedding_out", watched)
    messages = record(monkeypatch)
    run(single_release(), tables(passives=1), folder)
    sent = [message.tensors["embedding"] for message in messages if message.kind == Kind.RELEASE]
    rows = sum(map(len, sent))
    assert rows > 200
    shares = {}
    for test in (impossible_floats, impossible_steps):
        matched, excluded = 0, 0
        for released, candidates in zip(sent, batches, strict=True):
            for row, values in enumerate(released):
                against = test(values, candidates, sigmas[0])
                matched += torch.nonzero(against == against.min()).flatten().tolist() == [row]
                excluded += int(against[row] > 0)
        shares[test.__name__] = (matched / rows, excluded / rows)
    return shares


def test_no_row_of_a_run_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = attacked(tmp_path, monkeypatch)
    assert shares["impossible_steps"] == (0.0, 0.0)
    assert shares["impossible_floats"][0] < 0.03


def test_in_floating_point_every_row_would_be_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice, "lattice_gaussian", in_floating_point)
    matched, excluded = attacked(tmp_path, monkeypatch)["impossible_floats"]
    assert matched > 0.95
    assert excluded == 0.0
