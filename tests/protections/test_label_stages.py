"""Labels that are drawn in stages: each once, with the stated probabilities, and alike after a resume."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from cutlayer.config import Job, validated
from cutlayer.errors import CheckpointError, ConfigError
from cutlayer.jobs.check import check_job, notes_of
from cutlayer.protections.label_dp import LabelDP, LabelDPConfig
from cutlayer.protections.label_memory import Drawn, LabelMemory, Recalled
from cutlayer.protections.label_stages import UNDRAWN, LabelStages, parts_of_rows
from tests.parties.runs import raw_job

SECRET = bytes(range(32))
ROWS, CLASSES, EPS = 20_000, 4, 1.0
# Alone; the first two, which keep a label with e / (e + 1); all, with e / (e + 3).
PRIORS = torch.tensor([[0.97, 0.01, 0.01, 0.01], [0.45, 0.45, 0.05, 0.05], [0.25, 0.25, 0.25, 0.25]])


def digests(rows: int = ROWS, seed: int = 0) -> Tensor:
    return torch.randint(256, (rows, 16), generator=torch.Generator().manual_seed(seed)).to(torch.uint8)


def staged(codes: Tensor | None = None, stages: int = 2, eps: float = EPS, **options: Any) -> LabelStages:
    codes = torch.arange(ROWS) % CLASSES if codes is None else codes
    of = Drawn("label", eps, CLASSES, stages)
    return LabelStages(codes, digests(), of, epochs=6, secret=SECRET, draws="memory 0", **options)


def with_priors(stages: LabelStages, epoch: int = 2) -> tuple[LabelStages, Tensor]:
    """The stages after the second was drawn with one of three priors for each row, and the rows of its part."""
    rows = torch.arange(ROWS)
    stages.begin(0)
    due = stages.awaits(epoch, rows)
    stages.predicted(rows[due], PRIORS[rows[due] // CLASSES % 3])
    stages.begin(epoch + 1)
    return stages, rows[due]


def test_parts_depend_on_ids_and_the_secret_alone() -> None:
    parts = parts_of_rows(digests(), 3, SECRET, "label", "memory 0")
    assert stats.chisquare(torch.bincount(parts, minlength=3).numpy()).pvalue > 1e-6
    order = torch.randperm(ROWS)
    assert torch.equal(parts_of_rows(digests()[order], 3, SECRET, "label", "memory 0"), parts[order])
    for other in ((SECRET[::-1], "memory 0"), (SECRET, "memory 1")):
        agreeing = int((parts_of_rows(digests(), 3, other[0], "label", other[1]) == parts).sum())
        assert stats.binomtest(agreeing, ROWS, 1 / 3).pvalue > 1e-6


def test_there_is_a_stage_for_each_epoch_at_most() -> None:
    assert staged(stages=6).starts == (0, 1, 2, 3, 4, 5)
    with pytest.raises(ConfigError, match=r"expected train\.epochs of 7 or more, one for each stage, got 6"):
        staged(stages=7)


def test_labels_are_kept_with_the_probability_of_their_prior() -> None:
    codes = torch.arange(ROWS) % CLASSES
    stages, rows = with_priors(staged())
    kind, drawn, truth = rows // CLASSES % 3, stages.drawn[rows], codes[rows]
    assert bool((drawn[kind == 0] == 0).all()), "one likely class"

    def agrees(which: Tensor, kept: float, eps: float) -> bool:
        return bool(stats.binomtest(int((drawn == truth)[which].sum()), int(which.sum()), kept).pvalue > 1e-6)

    two, four = (kind == 1) & (truth < 2), kind == 2
    for eps, right in ((EPS, True), (2 / 3 * EPS, False), (3 / 2 * EPS, False)):
        assert agrees(two, math.exp(eps) / (math.exp(eps) + 1), eps) == right
        assert agrees(four, math.exp(eps) / (math.exp(eps) + 3), eps) == right
    outside = drawn[(kind == 1) & (truth >= 2)]
    assert stats.binomtest(int((outside == 0).sum()), len(outside)).pvalue > 1e-6
    assert int(outside.max()) < 2
    assert stages.constant == int((kind == 0).sum())
    assert stages.flipped == pytest.approx(stages.expected_flips, rel=0.03)


def test_a_row_is_drawn_once_and_tells_nothing_before() -> None:
    stages = staged()
    stages.begin(0)
    first, later = stages.drawn.clone(), stages.drawn == UNDRAWN
    assert 0.45 < float(later.double().mean()) < 0.55
    result = stages.likelihood.amax(1) > stages.likelihood.amin(1)
    assert torch.equal(result, ~later)
    stages, rows = with_priors(stages)
    assert torch.equal(rows, later.nonzero().flatten())
    assert torch.equal(stages.drawn[~later], first[~later]), "the first part keeps its draws"
    second, likelihood = stages.drawn.clone(), stages.likelihood.clone()
    assert not (second == UNDRAWN).any()
    constant = rows[rows // CLASSES % 3 == 0]
    assert bool((likelihood[constant] == likelihood[constant, :1]).all()), "a label of one class tells nothing"
    stages.predicted(torch.arange(ROWS), PRIORS[torch.arange(ROWS) % 3])
    assert stages.begin(5) == 0
    assert torch.equal(stages.drawn, second)
    resumed = staged()
    resumed.begin(0)
    resumed.load_state_dict(stages.state_dict())
    assert torch.equal(resumed.drawn, second)
    assert torch.equal(resumed.likelihood, likelihood)
    with pytest.raises(ValueError, match="in 2 stages"):
        staged(stages=3).load_state_dict(stages.state_dict())


def test_without_correction_a_drawn_label_is_taken_for_the_true_one() -> None:
    stages, rows = with_priors(staged(correction="none"))
    assert torch.equal(stages.likelihood[rows].argmax(1), stages.drawn[rows])
    assert torch.equal(stages.likelihood[rows].sum(1), torch.ones(len(rows), dtype=torch.float64))


def test_the_first_prior_of_a_stage_counts_whatever_a_resume_predicts(tmp_path: Path) -> None:
    memory = LabelMemory(tmp_path / "memory", tmp_path / "run.json", SECRET)
    codes, ids = torch.arange(100) % CLASSES, digests(100)
    recalled = memory.recall(codes, ids, Drawn("label", EPS, CLASSES, 2), "redraw")
    likely = torch.rand(100, CLASSES, generator=torch.Generator().manual_seed(0)) > 0.5
    assert torch.equal(memory.stage(recalled, 1, ids, likely), likely)
    assert torch.equal(memory.stage(recalled, 1, ids, ~likely), likely)
    assert torch.equal(memory.stage(recalled, 2, ids, ~likely), ~likely)
    with pytest.raises(CheckpointError, match="damaged"):
        memory.stage(recalled, 1, ids.flip(0), likely)
    (path,) = (tmp_path / "memory").glob("*-1.stage")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged"):
        memory.stage(recalled, 1, ids, likely)


def test_a_stage_whose_likely_classes_are_lost_is_not_drawn_again(tmp_path: Path) -> None:
    """Other likely classes would be a second draw of the same labels, whose eps no ledger states."""
    codes, ids = torch.arange(100) % CLASSES, digests(100)
    likely = torch.ones(100, CLASSES, dtype=torch.bool)
    of = Drawn("label", EPS, CLASSES, 3)

    def resumed() -> tuple[LabelMemory, Recalled]:
        memory = LabelMemory(tmp_path / "memory", tmp_path / "run.json", SECRET)
        return memory, memory.recall(codes, ids, of, "redraw")

    memory, recalled = resumed()
    memory.stage(recalled, 1, ids, likely)
    memory.stage(recalled, 2, ids, likely)
    memory, again = resumed()
    assert again == recalled
    assert torch.equal(memory.stage(again, 1, ids, ~likely), likely)
    for path in (tmp_path / "memory").glob("*-1.stage"):
        path.unlink()
    with pytest.raises(CheckpointError, match=r"likely classes of stage 1 that the run drew from.*got none"):
        memory.stage(again, 1, ids, likely)
    assert torch.equal(memory.stage(again, 2, ids, ~likely), likely)


def test_each_number_of_stages_has_draws_of_its_own(tmp_path: Path) -> None:
    """Two runs that share a memory and differ in their stages share no generation: rows would be drawn twice."""
    memory = LabelMemory(tmp_path / "memory", tmp_path / "run.json", SECRET)
    codes, ids = torch.arange(100) % CLASSES, digests(100)
    names = {memory.recall(codes, ids, Drawn("label", EPS, CLASSES, count), "redraw").draws for count in (1, 2, 3)}
    assert len(names) == 3


REDRAW = {"eps": 1.0, "changed_labels": "redraw"}


def job_of(privacy: dict[str, Any] | None = None, task: str = "binary", **options: Any) -> Job:
    staged = {"label_dp": REDRAW | {"stages": 2}}
    return validated(Job, raw_job(task, privacy=staged if privacy is None else privacy, **options), "")


def test_what_stages_cannot_be_combined_with_is_refused() -> None:
    check_job(job_of())
    assert "at the start of epochs 1, 2" in " ".join(notes_of(job_of()))
    assert "stages" not in " ".join(notes_of(job_of({"label_dp": REDRAW})))
    for options, reason in (
        ({"epochs": 1}, "expected one epoch or more for each stage of parties.bank.privacy.label_dp.stages: 2, got 1"),
        ({"epochs": "auto"}, "got train.epochs: auto, which stops early"),
        ({"early_stop": {"patience": 2}}, "got train.early_stop"),
        ({"workers": 2}, "expected train.workers: 1"),
        ({"class_weight": "balanced"}, "expected no train.class_weight with label_dp"),
        ({"task": "regression"}, "on a task of kind binary or multiclass"),
        ({"privacy": {"label_dp": REDRAW | {"stages": 2}, "marvell": {"sum_kl": 0.25}}}, "got marvell; leave one"),
    ):
        with pytest.raises(ConfigError, match=reason):
            check_job(job_of(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("choice", ["refuse", "keep"])
def test_stages_need_draws_of_their_own_in_each_training(choice: str) -> None:
    with pytest.raises(ConfigError, match="changed_labels: redraw with stages above 1"):
        validated(LabelDPConfig, {"eps": 1.0, "stages": 2, "changed_labels": choice}, "label_dp")


def test_a_call_has_no_stages() -> None:
    with pytest.raises(ConfigError, match="expected stages 1 of a call"):
        LabelDP(LabelDPConfig(eps=1.0, stages=2, changed_labels="redraw"))(np.zeros(3))
    with pytest.raises(ConfigError, match=r"train.epochs of 7 or more"):
        staged(stages=7)
