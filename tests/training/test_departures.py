"""What is left when parties leave: measured on the run's own embeddings, beside what others reach without them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.channel import Kind
from cutlayer.config import Job, validated
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.departures import departure_result
from cutlayer.training.finetuning import checked_absent, finetune_top
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.together import TrainedRun
from cutlayer.training.trained import Run
from tests.parties.interruptions import Dying, assert_equal, interrupted
from tests.parties.runs import ACTIVE, PASSIVES, make_job, raw_job, record, run, tables, unaudited_job

MULTI = {"kind": "multi_head", "hidden": [5]}
LEARNT: dict[str, Any] = {"epochs": 5, "batch_size": 60, "audit": {"every": "never"}}
DROPPED = {"party_dropout": {"rate": 0.5}}


def again(job: Job, folder: RunFolder, trained: TrainedRun, absent: tuple[str, ...]) -> torch.Tensor:
    """Logits of the test rows from the saved models and stores, without the absent parties."""
    active, made = trained.active, {}
    loaded = Run(job, folder, classes=active.task.classes)
    for name, width in active.widths.items():
        store = Store.open(folder.data(name))
        bottom = loaded.bottom(name)
        assert bottom.width == width
        made[name] = bottom(*store.gather(active.split.part("test")))
    top = loaded.top(active.widths)
    with torch.no_grad():
        return top.answer(made, made.keys() - set(absent))


@pytest.mark.parametrize(
    ("top", "active_features"),
    [({"kind": "mlp", "hidden": [5]}, False), (MULTI, True)],
    ids=["zeros", "multi_head"],
)
def test_every_subset_is_answered_by_the_kept_model(tmp_path: Path, top: dict[str, Any], active_features: bool) -> None:
    job = unaudited_job(passives=3, top=top, active_features=active_features, epochs=1)
    trained = run(job, tables(passives=3), tmp_path)
    sizes = (1, 2, 3) if active_features else (1, 2)
    assert set(trained.active.logits_without) == {
        combination for size in sizes for combination in combinations(PASSIVES, size)
    }
    for absent, logits in {(): trained.active.logits, **trained.active.logits_without}.items():
        expected = again(job, RunFolder(tmp_path), trained, absent)
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-6)
    assert len(trained.active.extra_heads) == (len(trained.active.logits_without) if top is MULTI else 0)


def test_it_costs_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = record(monkeypatch)
    job = unaudited_job(passives=2)
    run(job, tables(passives=2), tmp_path)
    batches = (job.train.epochs + 1) * 2  # one batch of held-out rows, asked of two parties, each epoch and at the end
    assert sum(message.kind == Kind.REQUEST for message in messages) == batches
    assert sum(item.kind == Kind.EVALUATION for item in messages) == batches


def test_party_dropout_at_rate_zero_changes_no_bit(tmp_path: Path) -> None:
    none = run(unaudited_job(passives=2), tables(passives=2), tmp_path / "none")
    zero = run(
        unaudited_job(passives=2, privacy={"party_dropout": {"rate": 0.0}}), tables(passives=2), tmp_path / "zero"
    )
    some = run(unaudited_job(passives=2, privacy=DROPPED), tables(passives=2), tmp_path / "some")
    assert zero.active.step_losses == none.active.step_losses
    assert some.active.step_losses != none.active.step_losses
    (evidence,) = some.active.evidence
    assert evidence.covered == evidence.sent == 2 * 4 + 3  # steps and batches of held-out rows
    assert evidence.metrics["steps"] == 8
    assert 0 < evidence.changed <= 8


@pytest.mark.parametrize(
    ("top", "other"),
    [
        (MULTI, {"marvell": {"sum_kl": 0.16}}),
        ({"kind": "mlp", "hidden": [5]}, {"max_norm": None}),
        (MULTI, {"dcor": {"alpha": 0.01}}),
    ],
    ids=["multi_head-marvell", "mlp-max_norm", "multi_head-dcor"],
)
def test_a_run_goes_well_with_dropped_parties_and_protected_gradients(
    tmp_path: Path, top: dict[str, Any], other: dict[str, Any]
) -> None:
    job = unaudited_job(passives=2, top=top, active_features=False, privacy={**DROPPED, **other}, epochs=1)
    trained = run(job, tables(passives=2), tmp_path)
    assert {evidence.protection for evidence in trained.active.evidence} == {"party_dropout", *other}
    assert bool(trained.active.logits.isfinite().all())


def test_a_resume_drops_the_same_parties(tmp_path: Path) -> None:
    job, given = make_job(passives=2, privacy=DROPPED, top=MULTI, epochs=3), tables(passives=2)
    whole = run(job, given, tmp_path / "whole")
    interrupted(job, given, tmp_path / "cut", Dying(6))
    resumed = run(job, given, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "cut", resumed, tmp_path / "whole", whole, job)
    assert all(
        torch.equal(logits, resumed.active.logits_without[names])
        for names, logits in whole.active.logits_without.items()
    )


def executed(tmp_path: Path, compare: list[str], passives: int, **options: Any) -> tuple[Job, RunFolder]:
    raw = raw_job(passives=passives, **{**LEARNT, **options})
    raw["compare"] = compare
    job = validated(Job, raw, "")
    given = tables(passives=passives, rows=400)
    return job, execute(job, tmp_path / "run", Options(Keys(tmp_path, bytes(32)), tables=given), Progress())


def test_a_whole_job_tells_what_is_left_beside_its_references(tmp_path: Path) -> None:
    compare = ["alone", "undefended", "retrained", "finetuned"]
    _, folder = executed(tmp_path, compare, 2, privacy=DROPPED)
    facts = folder.read_json("summary.json")
    rows = {tuple(row["absent"]): row for row in facts["departures"]["rows"]}
    models = {row["name"]: row["metrics"]["auc"] for row in facts["utility"]["rows"]}
    telco, shop = PASSIVES[:2]
    assert [*rows] == [(), (telco,), (shop,), (telco, shop)]
    assert rows[()]["metrics"] == next(r for r in facts["utility"]["rows"] if r["name"] == "this run")["metrics"]
    assert rows[()]["references"] == {"undefended": models["undefended"]}
    assert rows[(telco,)]["contributed"] == [ACTIVE, shop]
    assert rows[(telco,)]["references"]["retrained"] == models[f"retrained without {telco}"]
    assert rows[(shop,)]["references"]["fine-tuned"] == models[f"fine-tuned without {shop}"]
    assert rows[(telco, shop)]["references"]["retrained"] == models[f"{ACTIVE} alone"]
    assert rows[(telco, shop)]["references"]["fine-tuned"] == models[f"fine-tuned without {telco}, {shop}"]
    assert rows[(telco,)]["low"] < rows[(telco,)]["metrics"]["auc"] < rows[(telco,)]["high"]
    assert facts["departures"]["heads"] == 1


def test_of_two_parties_retrained_is_the_active_one_alone(tmp_path: Path) -> None:
    _, folder = executed(tmp_path, ["retrained"], 1, top=MULTI)
    facts = folder.read_json("summary.json")
    assert f"{ACTIVE} alone" in {row["name"] for row in facts["utility"]["rows"]}
    alone = next(row for row in facts["utility"]["rows"] if row["name"] == f"{ACTIVE} alone")
    assert facts["departures"]["rows"][1]["references"] == {"retrained": alone["metrics"]["auc"]}
    assert facts["departures"]["heads"] == 2
    assert facts["departures"]["extra_parameters"] == (6 * 5 + 5) + (5 + 1)


def test_without_features_of_its_own_nobody_is_retrained_alone(tmp_path: Path) -> None:
    _, folder = executed(tmp_path, ["retrained", "finetuned", "alone"], 1, active_features=False)
    facts = folder.read_json("summary.json")
    assert [row["name"] for row in facts["utility"]["rows"]] == ["this run", "chance"]
    assert len(facts["departures"]["rows"]) == 1


def test_fine_tuning_trains_the_top_model_alone_and_makes_it_better(tmp_path: Path) -> None:
    job, folder = executed(tmp_path, [], 2)
    before = {path: path.read_bytes() for path in folder.path.rglob("*.safetensors")}
    state = torch.get_rng_state()
    first, second = (finetune_top(Run(job, folder), [PASSIVES[0]], epochs=8) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.logits, second.logits)
    assert {path: path.read_bytes() for path in before} == before
    row = folder.read_json("summary.json")["departures"]["rows"][1]
    assert row["absent"] == [PASSIVES[0]]
    assert first.metrics["log_loss"] < row["metrics"]["log_loss"]
    assert 0 < first.trained_epochs <= 8


def test_the_last_epoch_stands_where_nothing_may_choose(tmp_path: Path) -> None:
    job, folder = executed(tmp_path, [], 1, keep="last")
    assert finetune_top(Run(job, folder), [PASSIVES[0]], epochs=3).trained_epochs == 3


@pytest.mark.parametrize(
    ("absent", "names", "message"),
    [
        (["telko"], ["bank", "telco", "shop"], "no passive party is called 'telko'; did you mean 'telco'"),
        (["bank"], ["bank", "telco"], "expected absent passive parties, got bank; it holds the top model"),
        ("telco", ["bank", "telco"], r"expected absent as several names, got the text 'telco'; write \['telco'\]"),
        (
            ["telco", "shop"],
            ["telco", "shop"],
            "expected a party with features .* or train again with features of bank",
        ),
    ],
)
def test_who_cannot_be_absent(absent: Any, names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked_absent(absent, names, "bank")


def test_absent_parties_come_in_the_jobs_order_and_epochs_are_checked() -> None:
    assert checked_absent({"shop", "telco"}, ["telco", "bank", "shop"], "bank") == ("telco", "shop")
    assert checked_absent([], ["telco"], "bank") == ()
    with pytest.raises(ConfigError, match="expected epochs of 1 or more, got 0"):
        checked_absent(["telco"], ["bank", "telco"], "bank", epochs=0)


def test_facts_of_a_task_of_several_classes(tmp_path: Path) -> None:
    trained = run(unaudited_job("multiclass", passives=2), tables("multiclass", passives=2), tmp_path)
    rows = departure_result(trained.active, seed=0).rows
    assert [row.contributed for row in rows] == [
        (ACTIVE, "telco", "shop"),
        (ACTIVE, "shop"),
        (ACTIVE, "telco"),
        (ACTIVE,),
    ]
    for row in rows:
        low, value, high = row.low, row.metrics["accuracy"], row.high
        assert low is not None
        assert value is not None
        assert high is not None
        assert low <= value <= high
