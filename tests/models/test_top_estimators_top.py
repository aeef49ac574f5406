"""A fitted top model: absent partners, missing releases, saved state, programs, determinism, randomised labels."""

from __future__ import annotations

import copy
import json
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

from cutlayer.errors import CheckpointError, ConfigError
from cutlayer.kernels.noise.randomized_response import transition_matrix
from cutlayer.models import TOPS, Inputs, build_bottom, build_top, check_models, is_fitted, stated_width
from cutlayer.models.top_estimators import head as heads
from cutlayer.models.top_estimators import sample as samples
from cutlayer.models.top_estimators.layout import present_sets
from cutlayer.models.top_estimators.rows import OwnColumns
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer_export.onnx_program import trace_model
from tests.models.estimator_rows import (
    BINARY,
    INPUTS,
    MULTI,
    OWN,
    WIDTHS,
    columns,
    fit,
    fit_briefly,
    labels_of,
    regression,
    scores,
    top_of,
)

TRAINING, TEST = columns(600, 1), columns(600, 2)
FEW = {name: TRAINING[name][:200] for name in (OWN, "shop")}
"""Two sets of partners in place of four."""
TASKS = {"binary": BINARY, "multiclass": MULTI, "regression": regression(TRAINING)}
FAST = {"candidates": ["linear", "boosting"]}


@pytest.fixture(scope="module", autouse=True)
def _briefly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        fit_briefly(patched)
        yield


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    """A model with all candidates, and its result, by kind of task."""
    made = {}
    for kind, task in TASKS.items():
        model = top_of(task, folds=1)
        made[kind] = model, fit(model, task, TRAINING)
    return made


@pytest.mark.parametrize("kind", TASKS)
def test_it_predicts_held_out_rows_and_partners_add_to_it(fitted: dict[str, Any], kind: str) -> None:
    (model, result), task = fitted[kind], TASKS[kind]
    logits = model(TEST)
    assert logits.shape == (600, task.outputs)
    assert logits.dtype == torch.float32
    test = labels_of(task, TEST)
    both, none = (
        task.evaluate(model.answer(TEST, [OWN, *there]), test)[task.metric] for there in (("telco", "shop"), ())
    )
    best = task.evaluate(_oracle(task), test)[task.metric]
    assert best - 0.05 < both <= best + 0.01
    assert none < both - 0.05
    assert result.rows == len(TRAINING[OWN])
    assert result.alone.alone is None
    by_name = {each.name: each for each in result.candidates}
    left = sum(not each.ruled_out for each in result.candidates if each.name != "average")
    assert by_name.keys() - {"average"} == {"linear", "boosting", "network", "own columns"}
    assert ("average" in by_name) == (left > 1)
    assert by_name[result.chosen].loss == min(each.loss for each in result.candidates)
    assert sum(each.weight for each in result.candidates if each.name != "average") == pytest.approx(1)
    assert by_name["linear"].score == pytest.approx(both, abs=0.08)
    assert 0 < by_name["linear"].error < 0.05
    own = {each.name: each.score for each in result.alone.candidates}
    assert own["linear"] < by_name["linear"].score - 0.05


def _oracle(task: Task) -> torch.Tensor:
    value = scores(TEST)[:, None]
    if task.kind == "binary":
        return value
    if task.kind == "regression":
        return (10 + 3 * value - task.center) / task.scale
    normal = torch.distributions.Normal(0, 1)
    low, high = normal.cdf(-1 - value), normal.cdf(1 - value)
    return torch.cat([low, high - low, 1 - high], dim=1).clamp_min(1e-9).log()


@pytest.mark.parametrize("kind", TASKS)
def test_a_fresh_model_answers_from_the_state_of_another_as_it_does(fitted: dict[str, Any], kind: str) -> None:
    model, task = fitted[kind][0], TASKS[kind]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert all(bool(tensor.isfinite().all()) for tensor in state.values())
    other = top_of(task)
    other.load_state_dict(state)
    for there in ((), ("telco",), ("shop",), ("telco", "shop")):
        assert torch.equal(other.answer(TEST, [OWN, *there]), model.answer(TEST, [OWN, *there]))
    # Another fitted state, of other shapes, and that of an unfitted model.
    small = top_of(task, candidates=["linear"])
    fit(small, task, {name: part[:100] for name, part in TRAINING.items()}, labels=labels_of(task, TRAINING)[:100])
    other.load_state_dict(small.state_dict())
    assert torch.equal(other(TEST), small(TEST))
    other.load_state_dict(top_of(task).state_dict())
    assert not other.is_fitted
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({name: tensor for name, tensor in state.items() if not name.endswith("weights")})


@pytest.mark.parametrize("kind", ["multiclass", "regression"])
def test_it_has_a_program_for_any_number_of_rows(kind: str) -> None:
    """The parts of one set of partners, which are those of another."""
    given = {OWN: FEW[OWN], "shop": FEW["shop"]}
    model = top_of(TASKS[kind], given, folds=1)
    fit(model, TASKS[kind], given, labels=labels_of(TASKS[kind], TRAINING)[: len(FEW[OWN])])
    program = trace_model("top", model, ({name: TEST[name][:3] for name in given},))
    for rows in (1, 500):
        given = {name: TEST[name][:rows].clone() for name in FEW}
        given["shop"][0] = torch.nan
        torch.testing.assert_close(program.module()(given), model(given), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_own_columns_compete_with_partners_that_add_noise(kind: str) -> None:
    """Of 60 columns of noise and few rows; the model of own columns alone is kept and loaded, and reads them alone."""
    task, draw = TASKS[kind], torch.Generator().manual_seed(3)
    widths = {"telco": 60, OWN: 3}
    given, test = ({n: torch.randn(rows, width, generator=draw) for n, width in widths.items()} for rows in (200, 3000))
    labels = _of_own(task, given, draw)
    model = build_top({"kind": "auto", "candidates": ["linear", "boosting"]}, widths, task.outputs)
    result = model.fit(given, labels, TrainingLoss(task), own=OWN, inputs=Inputs((), 3), seed=0)
    weights = {each.name: each.weight for each in result.candidates}
    assert weights["own columns"] > 0.5
    truth = _of_own(task, test, draw)
    both, alone = (task.evaluate(model.answer(test, names), truth)[task.metric] for names in ((OWN, "telco"), (OWN,)))
    assert both > alone - 0.02
    other = build_top({"kind": "auto"}, widths, task.outputs)
    other.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()})
    assert torch.equal(other(test), model(test))
    codes, numbers = model.all_columns(test)
    part = next(part for part in model.heads[0].parts if isinstance(part, OwnColumns))
    assert part(codes, numbers).equal(part(codes, torch.cat([numbers[:, :60] + 1, numbers[:, 60:]], dim=1)))


def _of_own(task: Task, given: dict[str, torch.Tensor], draw: torch.Generator) -> torch.Tensor:
    value = given[OWN].sum(1) + torch.randn(len(given[OWN]), generator=draw)
    return (value > 0).long() if task.kind == "binary" else 10 + 3 * value


def test_an_absent_partner_has_no_part_and_a_partner_without_a_model_of_its_set_neither() -> None:
    torch.manual_seed(0)
    widths = {"bank": 2, **{f"p{index}": 1 for index in range(4)}}
    given = {name: torch.randn(300, width) for name, width in widths.items()}
    task = BINARY
    labels = (torch.cat(list(given.values()), dim=1).sum(1) > 0).long()
    model = build_top({"kind": "linear"}, widths, 1)
    model.fit(given, labels, TrainingLoss(task), own="bank", inputs=Inputs((), 2), seed=0)
    assert len(model.heads) == 1 + 4 + 6 + 1
    changed = {**given, "p3": given["p3"] + 100}
    for present in (["bank", "p0", "p1"], ["bank", "p0"], ["bank"]):
        assert torch.equal(model.answer(given, present), model.answer(changed, present))
    assert torch.equal(model.answer(given, ["bank", "p0"]), model.answer(given, ["bank"]))
    assert not torch.equal(model.answer(given, ["bank", "p0", "p1"]), model.answer(given, ["bank"]))
    assert not torch.equal(model(given), model(changed))


def test_sets_of_partners() -> None:
    assert len(present_sets(["a", "b", "c"])) == 8
    assert [len(names) for names in present_sets("abcde")] == [5] + [4] * 5 + [3] * 10 + [0]
    assert present_sets([]) == (frozenset(),)


def test_a_label_owner_without_columns_answers_the_shares_of_the_classes_alone() -> None:
    given = {name: part for name, part in TRAINING.items() if name != OWN}
    labels = labels_of(BINARY, TRAINING)
    model = build_top({"kind": "auto", **FAST}, {name: WIDTHS[name] for name in given}, 1)
    result = model.fit(given, labels, TrainingLoss(BINARY), own=None, inputs=Inputs(), seed=0)
    share = model.answer(given, []).sigmoid()
    assert share.unique().tolist() == pytest.approx([float(labels.float().mean())])
    assert result.alone.candidates[0].score == 0.5


@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_rows_without_a_release_are_fitted_and_predicted(kind: str) -> None:
    task = TASKS[kind]
    given = {name: part.clone() for name, part in TRAINING.items()}
    given["shop"][::3] = torch.nan
    model = top_of(task, folds=1) if kind == "binary" else top_of(task, folds=1, **FAST)
    result = fit(model, task, given)
    assert np.isfinite(result.loss)
    test = {name: part.clone() for name, part in TEST.items()}
    test["shop"][:300] = torch.nan
    logits, labels = model(test), labels_of(task, TEST)
    assert bool(logits.isfinite().all())
    without, having = (
        task.evaluate(logits[rows], labels[rows])[task.metric] for rows in (slice(300), slice(300, None))
    )
    alone = task.evaluate(model.answer(test, [OWN, "telco"])[:300], labels[:300])[task.metric]
    assert without < having - 0.02
    assert without > alone - 0.06


def test_tensors_of_a_state_that_do_not_fit_each_other_are_refused_as_it_is_loaded() -> None:
    loss = TrainingLoss(BINARY, transition=transition_matrix(2.0, 2))
    few = labels_of(BINARY, TRAINING)[:200]
    model = top_of(BINARY, FEW, folds=1, candidates=["linear"])
    fit(model, BINARY, FEW, loss=loss, labels=few)
    state, refused = model.state_dict(), set()
    assert "heads.0.inverse" in state
    for name, tensor in state.items():
        if name == "plan":
            continue
        for odd in (torch.zeros(1, 65_537), tensor.reshape(-1)[: tensor.numel() // 2], tensor[:0]):
            fresh = top_of(BINARY, FEW, folds=1, candidates=["linear"])
            try:
                fresh.load_state_dict({**state, name: odd.to(tensor.dtype)})
            except RuntimeError:
                refused.add(name)
                continue
            with suppress(CheckpointError):
                assert fresh(TEST).shape == (600, 1)
    assert {"heads.0.inverse", "heads.0.weights"} <= refused


def test_trees_of_a_state_that_do_not_fit_each_other_are_refused_as_it_is_loaded() -> None:
    """They answer few rows and many in two ways, of which each reads its own tensors."""
    model = top_of(BINARY, FEW, folds=1, candidates=["boosting"])
    fit(model, BINARY, FEW, labels=labels_of(BINARY, TRAINING)[:200])
    state = model.state_dict()
    plan = json.dumps(json.loads(bytes(state["plan"].tolist())) | {"categories": "x"})
    changed = [("plan", torch.tensor(list(plan.encode()), dtype=torch.uint8))]
    for name, tensor in state.items():
        if name.startswith("heads.0.parts.0."):
            odd = (torch.zeros(()), tensor[: len(tensor) // 2], tensor[:, None], tensor[None], -tensor.long() - 1)
            changed += [(name, each.to(tensor.dtype)) for each in odd]
    refused = 0
    for name, tensor in changed:
        fresh = top_of(BINARY, FEW, folds=1, candidates=["boosting"])
        try:
            fresh.load_state_dict({**state, name: tensor})
        except RuntimeError:
            refused += 1
        else:
            assert fresh(TEST).shape == (600, 1)
    assert refused > len(changed) / 2


def test_a_fit_depends_on_its_seed_alone_and_leaves_the_random_state() -> None:
    task, states = TASKS["regression"], []
    given = FEW
    for seed, disturbance in ((5, 0), (5, 1), (6, 0)):
        torch.manual_seed(disturbance)
        np.random.seed(disturbance)
        before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()
        model = top_of(task, given, folds=1, candidates=["network"])
        fit(model, task, given, seed, labels=labels_of(task, TRAINING)[:200])
        assert torch.equal(before[0], torch.random.get_rng_state())
        assert before[1] == np.random.get_state()[1].tolist()
        states.append(model(TEST))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
    # Boosting draws nothing from so few rows, but what it leaves behind counts.
    before = torch.random.get_rng_state()
    fit(top_of(task, given, folds=1, candidates=["boosting"]), task, given, labels=labels_of(task, TRAINING)[:200])
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("section", [{"folds": 2}, {"kind": "linear"}, {"kind": "boosting", "max_iter": 5}])
def test_a_class_of_one_row_and_one_of_none_do_not_fail_or_warn(section: dict[str, Any]) -> None:
    """No warning of a library reaches the user."""
    task = Task("multiclass", ("a", "b", "c", "d"))
    given = {name: FEW[name][:80] for name in FEW}
    labels = torch.cat([torch.zeros(40), torch.ones(39), torch.full((1,), 3.0)]).long()
    model = top_of(task, given, **section)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = fit(model, task, given, labels=labels)
    assert not seen
    assert bool(model(given).isfinite().all())
    assert int(model(given).argmax(1).eq(2).sum()) == 0
    assert np.isfinite(result.loss)


def test_rows_of_one_class_get_its_share() -> None:
    model = top_of(BINARY)
    fit(model, BINARY, {name: part[:30] for name, part in TRAINING.items()}, labels=torch.ones(30, dtype=torch.int64))
    assert bool((model(TEST) > 10).all())


def test_predictions_are_of_the_true_labels_where_those_of_the_fit_were_drawn() -> None:
    given = columns(1_500, 4)
    truth = labels_of(BINARY, given)
    transition = transition_matrix(1.0, 2)
    draw = torch.Generator().manual_seed(0)
    flipped = torch.rand(len(truth), generator=draw) < transition[0, 1]
    drawn = torch.where(flipped, 1 - truth, truth)
    plain, corrected = (top_of(BINARY, candidates=["linear"]) for _ in range(2))
    fit(plain, BINARY, given, labels=drawn)
    fit(corrected, BINARY, given, labels=drawn, loss=TrainingLoss(BINARY, transition))
    test = labels_of(BINARY, TEST)
    losses = [BINARY.evaluate(model(TEST), test)["log_loss"] for model in (plain, corrected)]
    assert losses[1] < losses[0] - 0.05
    # It ranks as before, down to the rows at the floor.
    assert torch.equal(plain(TEST)[:, 0].argsort(), corrected(TEST)[:, 0].argsort())
    shares = corrected(TEST).double().sigmoid()
    wanted = (plain(TEST).double().sigmoid() - transition[0, 1]) / (1 - 2 * transition[0, 1])
    inside = (wanted > 0.05) & (wanted < 0.95)
    assert int(inside.sum()) > 100
    torch.testing.assert_close(shares[inside], wanted[inside], rtol=0, atol=1e-5)


def test_labels_of_eps_0_say_nothing() -> None:
    model = top_of(BINARY, candidates=["linear"])
    fit(model, BINARY, TRAINING, loss=TrainingLoss(BINARY, transition_matrix(0.0, 2)))
    assert float(model(TEST).abs().max()) < 1e-6


def test_class_weights_and_row_weights_count(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: part[:200] for name, part in TRAINING.items()}
    labels = ((scores(given) > 2).long() + (torch.arange(200) % 7 == 0).long()).clamp_max(1)
    given = {name: given[name] for name in (OWN, "shop")}  # two sets of partners in place of four
    for candidate in ("linear", "boosting", "network"):
        shares = []
        for loss in (TrainingLoss(BINARY), TrainingLoss(BINARY).balanced(labels)):
            model = top_of(BINARY, given, candidates=[candidate], folds=1)
            fit(model, BINARY, given, labels=labels, loss=loss)
            shares.append(float(model(TEST).sigmoid().mean()))
        assert shares[1] > shares[0] + 0.02, candidate
        weighted = top_of(BINARY, given, candidates=[candidate], folds=1)
        weights = torch.where(labels == 1, 4.0, 1.0)
        fit(weighted, BINARY, given, labels=labels, weights=weights)
        assert float(weighted(TEST).sigmoid().mean()) > shares[0] + 0.02, candidate


def test_too_many_rows_are_drawn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MAX_CELLS", 12 * 300)
    model = top_of(BINARY, candidates=["linear"])
    assert fit(model, BINARY, TRAINING).rows == 300


@pytest.mark.parametrize("kind", TASKS)
def test_threads_predict_the_same_to_the_bit(
    fitted: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cutlayer.models.top_estimators.top._CHUNK", 64)
    answers, used = [], set[int]()
    model = fitted[kind][0]
    plain = model._logits
    monkeypatch.setattr(model, "_logits", lambda predicted: (used.add(threading.get_ident()), plain(predicted))[1])
    for threads in (1, 3):
        monkeypatch.setattr("cutlayer.workers.work_threads", lambda count=threads: count)
        answers.append(model(TEST))
    assert answers[0].equal(answers[1])
    assert len(used) > 1


def test_the_precision_of_training_does_not_apply() -> None:
    model = build_top({"kind": "linear"}, WIDTHS, 1, precision="bf16")
    fit(model, BINARY, TRAINING)
    other = copy.deepcopy(model)
    assert torch.equal(other(TEST), model(TEST))
    assert model.precision == "float32"


def test_before_its_fit_and_without_rows_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a fitted top model"):
        top_of(BINARY)(TEST)
    with pytest.raises(ConfigError, match="expected a training row, got none"):
        fit(top_of(BINARY), BINARY, {name: part[:0] for name, part in TRAINING.items()})


def test_sections() -> None:
    assert {kind for kind in TOPS if is_fitted({"kind": kind})} == {"auto", "linear", "boosting", "sklearn"}
    with pytest.raises(ConfigError, match=r"model\.top\.candidates"):
        check_models({}, {"kind": "auto", "candidates": ["forest"]})
    with pytest.raises(ConfigError, match="max_itr"):
        check_models({}, {"kind": "boosting", "max_itr": 3})


def test_settings_of_boosting_are_used() -> None:
    model = top_of(BINARY, kind="boosting", max_iter=7, max_leaf_nodes=4)
    fit(model, BINARY, TRAINING)
    trees = model.heads[0].parts[0]
    assert len(trees.roots) == 7
    assert len(trees.value) <= 7 * 7


def test_own_columns_pass_as_they_are() -> None:
    bottom = build_bottom({"kind": "columns"}, INPUTS)
    codes, numbers = TRAINING[OWN][:, :2].int(), TRAINING[OWN][:, 2:]
    assert torch.equal(bottom(codes, numbers), TRAINING[OWN])
    assert bottom.width == 4
    assert stated_width({"kind": "columns"}) is None
    assert heads.Head.kind == "head"
