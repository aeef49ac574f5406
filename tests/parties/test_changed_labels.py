"""Labels that are corrected between two trainings of a job, seen from the wire and from the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from cutlayer.channel import Kind
from cutlayer.config import Job, validated
from cutlayer.errors import BudgetExceeded, DataError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.session.local import LocalSide
from cutlayer.parties.session.observer import Observer
from cutlayer.training import together
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.run_ledger import ledger_after
from cutlayer.training.tables import open_table
from cutlayer.training.together import TrainedRun, train_together
from tests.parties.interruptions import Crash, Dying
from tests.parties.mutants import tamper, with_tensors
from tests.parties.runs import ACTIVE, KEY, PASSIVES, raw_job, record, tables

pytestmark = pytest.mark.filterwarnings("ignore:labels of the same rows were drawn before")
"""Changed labels are drawn anew here, which adds up; tests/training/test_all_runs.py has the warning."""
GIVEN = tables()
STEPS = 2


def corrected(given: Mapping[str, pa.Table], share: float = 0.05) -> dict[str, pa.Table]:
    """The same tables with some labels corrected from no to yes."""
    labels = np.array(given[ACTIVE]["label"].to_pylist())
    draw = np.random.default_rng(3)
    labels[(labels == "no") & (draw.random(len(labels)) < share * 2)] = "yes"
    index = given[ACTIVE].column_names.index("label")
    return {**given, ACTIVE: given[ACTIVE].set_column(index, "label", pa.array(labels))}


def job_of(choice: str = "refuse", ids: bool = True, **options: Any) -> Job:
    raw = raw_job(
        privacy={"label_dp": {"eps": 1.0, "changed_labels": choice}}, audit={"every": "never"}, epochs=1, batch_size=96
    )
    if not ids:
        for party in raw["parties"].values():
            party["id"] = "@row"
            party["features"] = {"exclude": ["id"]}
    return validated(Job, {**raw, **options}, "")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The training labels of the runs that follow, by row of the common order."""
    found: list[Tensor] = []
    protect = ActiveSetup._protect_labels

    def spy(setup: ActiveSetup, *given: Any) -> None:
        protect(setup, *given)
        found.append(setup.labels)

    monkeypatch.setattr(ActiveSetup, "_protect_labels", spy)
    return found


def train(
    folder: Path,
    run: str,
    given: Mapping[str, Any] = GIVEN,
    job: Job | None = None,
    *,
    key: bytes | None = None,
    resume: bool = False,
    progress: Observer | None = None,
) -> TrainedRun:
    """One training among several under the same long-lived secrets."""
    job = job or job_of()
    opened = {name: open_table(job, name, given) for name in job.parties}
    (folder / run).mkdir(parents=True, exist_ok=True)
    keys = Keys(folder / "keys", key)
    return train_together(job, RunFolder(folder / run), opened, keys, progress or Observer(), resume=resume)


def merged(first: TrainedRun, second: TrainedRun, job: Job) -> float | None:
    """What the ledgers of two trainings come to together for the labels."""
    (total,) = ledger_after(job, first.active).merged(ledger_after(job, second.active)).totals
    return total.epsilon


def test_a_corrected_label_is_refused_before_anything_that_hangs_on_labels_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path, "a")
    messages = record(monkeypatch)
    with pytest.raises(DataError, match=r"expected label 'label' of every training row as it was .* Choose"):
        train(tmp_path, "b", corrected(GIVEN))
    assert not {message.kind for message in messages} & {Kind.EMBEDDING, Kind.GRADIENT, Kind.EVALUATION, Kind.EPOCH_END}


def test_a_kept_draw_shows_no_difference_and_costs_nothing(tmp_path: Path, drawn: list[Tensor]) -> None:
    first = train(tmp_path, "a")
    second = train(tmp_path, "b", corrected(GIVEN), job_of("keep"))
    assert torch.equal(drawn[0], drawn[1])
    (evidence,) = second.active.evidence
    assert evidence.metrics["old_draws_kept"] > 0
    assert merged(first, second, job_of("keep")) == 1.0


def test_a_redrawn_training_costs_its_eps_again(tmp_path: Path, drawn: list[Tensor]) -> None:
    first = train(tmp_path, "a")
    second = train(tmp_path, "b", corrected(GIVEN), job_of("redraw"))
    third = train(tmp_path, "c", GIVEN, job_of("redraw"))
    train_rows = drawn[0] >= 0
    for left, right in ((0, 1), (1, 2), (0, 2)):
        assert 0.2 < float((drawn[left] != drawn[right])[train_rows].double().mean()) < 0.6
    assert merged(first, second, job_of("redraw")) == 2.0
    assert merged(first, third, job_of("redraw")) == 2.0, "the same labels, drawn anew"
    assert merged(second, second, job_of("redraw")) == 1.0


@pytest.mark.parametrize("choice", ["refuse", "keep", "redraw"])
def test_a_run_and_what_it_is_compared_with_share_their_draws(tmp_path: Path, drawn: list[Tensor], choice: str) -> None:
    train(tmp_path, "a")
    privacy = {"label_dp": {"eps": 1.0, "changed_labels": choice}, "max_norm": {}}
    raw = raw_job(privacy=privacy, audit={"every": "never"}, epochs=1, batch_size=96)
    job = validated(Job, {**raw, "compare": ["each", "undefended"]}, "")
    given = GIVEN if choice == "refuse" else corrected(GIVEN)
    execute(job, tmp_path / "run", Options(Keys(tmp_path / "keys"), tables=given), Progress())
    protected = [labels for labels in drawn[1:] if float((labels != drawn[2]).double().mean()) == 0]
    assert len(drawn) == 5
    assert torch.equal(drawn[2], drawn[4]), "label_dp alone, and this run"
    assert len(protected) == 2


@pytest.mark.parametrize("choice", ["refuse", "redraw", "keep"])
def test_a_label_that_changes_under_a_run_is_refused_at_its_resume(
    tmp_path: Path, drawn: list[Tensor], choice: str
) -> None:
    job = job_of(choice)
    with pytest.raises(Crash):
        train(tmp_path, "a", GIVEN, job, progress=Dying(STEPS - 1))
    if choice == "keep":
        train(tmp_path, "a", corrected(GIVEN), job, resume=True)
        assert torch.equal(drawn[0], drawn[1])
        return
    with pytest.raises(DataError, match="another label in"):
        train(tmp_path, "a", corrected(GIVEN), job, resume=True)
    train(tmp_path, "a", GIVEN, job, resume=True)
    assert torch.equal(drawn[0], drawn[-1])


def test_a_supplied_key_remembers_nothing(tmp_path: Path) -> None:
    train(tmp_path, "a", key=KEY)
    train(tmp_path, "b", corrected(GIVEN), key=KEY)
    assert not list(tmp_path.rglob("*.labels"))
    assert not list(tmp_path.rglob("label_draws.json"))


NUMBERED = {name: GIVEN[name].sort_by("id").slice(0, 200) for name in (ACTIVE, PASSIVES[0])}
"""Tables in the same order, whose rows need no ids."""


def one_corrected(given: Mapping[str, pa.Table] = NUMBERED) -> dict[str, pa.Table]:
    """The same tables with one label corrected."""
    labels = given[ACTIVE]["label"].to_pylist()
    labels[7] = "no" if labels[7] == "yes" else "yes"
    index = given[ACTIVE].column_names.index("label")
    return {**given, ACTIVE: given[ACTIVE].set_column(index, "label", pa.array(labels))}


def test_one_changed_label_of_rows_without_ids_draws_all_anew_and_costs_again(
    tmp_path: Path, drawn: list[Tensor]
) -> None:
    """The ids, the rows and the secret are the same in both trainings: only the labels tell the draws apart."""
    job = job_of("redraw", ids=False)
    first, again, changed = (
        train(tmp_path, run, given, job) for run, given in (("a", NUMBERED), ("b", NUMBERED), ("c", one_corrected()))
    )
    assert torch.equal(drawn[0], drawn[1])
    assert merged(first, again, job) == 1.0
    assert merged(first, changed, job) == 2.0
    train_rows = drawn[0] >= 0
    assert 0.2 < float((drawn[0] != drawn[2])[train_rows].double().mean()) < 0.6


@pytest.mark.parametrize("key", [None, KEY], ids=["own", "supplied"])
def test_labels_of_rows_without_ids_are_remembered_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bytes | None
) -> None:
    """A killed start and one corrected label would draw all labels once more, which no account would state."""
    job = job_of(ids=False)
    with pytest.raises(Crash):
        train(tmp_path, "a", NUMBERED, job, key=key, progress=Dying(STEPS - 1))
    messages = record(monkeypatch)
    for choice in ("refuse", "keep"):
        with pytest.raises(DataError, match=r"the labels 'label' of the whole table as they were .*, got other ones"):
            train(tmp_path, choice, one_corrected(), job_of(choice, ids=False), key=key)
    with pytest.raises(DataError, match=r"got other ones; the run began before .*restore them"):
        train(tmp_path, "a", one_corrected(), job, key=key, resume=True)
    assert not {message.kind for message in messages} & {Kind.EMBEDDING, Kind.GRADIENT}
    redrawn = job_of("redraw", ids=False)
    both = train(tmp_path, "c", one_corrected(), redrawn, key=key)
    (total,) = ledger_after(redrawn, both.active).totals
    assert total.epsilon == 2.0
    raw = redrawn.model_dump(mode="json", exclude_unset=True)
    raw["parties"][ACTIVE]["privacy"]["budget"] = {"epsilon": 1.5}
    with pytest.raises(BudgetExceeded, match=r"got 2 at delta .* for 2 draws of a label, 1 of them by runs"):
        train(tmp_path, "d", one_corrected(), validated(Job, raw, ""), key=key)


def test_a_supplied_key_draws_labels_of_rows_without_ids_alike_anywhere(tmp_path: Path, drawn: list[Tensor]) -> None:
    job = job_of("redraw", ids=False)
    for folder in ("here", "here", "there"):
        train(tmp_path / folder, f"run-{len(drawn)}", NUMBERED, job, key=KEY)
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


def test_the_fingerprint_holds_the_labels_where_ids_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same ids and secret, one label changed, nothing remembered: the ledger may not say that draws were shared."""
    monkeypatch.setattr(together, "LabelMemory", lambda *_, **__: None)
    labels = GIVEN[ACTIVE]["label"].to_pylist()
    labels[7] = "no" if labels[7] == "yes" else "yes"
    index = GIVEN[ACTIVE].column_names.index("label")
    other = {**GIVEN, ACTIVE: GIVEN[ACTIVE].set_column(index, "label", pa.array(labels))}
    first, changed = train(tmp_path, "a"), train(tmp_path, "b", other)
    assert merged(first, changed, job_of()) == 2.0


def test_a_peer_that_ends_every_start_is_no_way_to_draws_without_account(tmp_path: Path, drawn: list[Tensor]) -> None:
    """With `redraw` each start draws every label anew: the mean over starts tells the labels."""
    job = job_of("redraw")
    for number in range(3):
        with pytest.raises(Crash):
            train(tmp_path, f"{number}", job=job, progress=Dying(STEPS - 1))
    trained = train(tmp_path, "last", job=job)
    (evidence,) = trained.active.evidence
    assert evidence.metrics["draws"] == 4
    assert len({labels.numpy().tobytes() for labels in drawn}) == 4
    (total,) = ledger_after(job, trained.active).totals
    assert total.epsilon == 4.0
    after = train(tmp_path, "after", job=job)
    (total,) = ledger_after(job, after.active).totals
    assert total.epsilon == 4.0, "the run that ended has a ledger of its own"
    train(tmp_path, "0", job=job, resume=True)
    (total,) = ledger_after(job, train(tmp_path, "later", job=job).active).totals
    assert total.epsilon == 3.0, "and so has one that was resumed"


def test_starts_that_came_to_no_end_are_paid_from_the_budget_of_labels(tmp_path: Path) -> None:
    raw = raw_job(
        privacy={"label_dp": {"eps": 1.0, "changed_labels": "redraw"}, "budget": {"epsilon": 2.0}},
        audit={"every": "never"},
        epochs=1,
        batch_size=96,
    )
    job = validated(Job, raw, "")
    for number in range(2):
        with pytest.raises(Crash):
            train(tmp_path, f"{number}", job=job, progress=Dying(STEPS - 1))
    with pytest.raises(BudgetExceeded, match=f"{ACTIVE}: expected a run of epsilon 2 at most.*got 3"):
        train(tmp_path, "last", job=job)


def test_a_peer_that_hides_a_row_gets_no_other_draws_of_rows_without_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row numbers are no ids, so that a row's draw hangs on all labels of the table: never on what a peer sends."""
    found: list[set[bytes]] = []
    real = LocalSide.draw_ids

    def spy(local: LocalSide, digests: Any) -> Any:
        found.append({row.tobytes() for row in real(local, digests)})
        return real(local, digests)

    monkeypatch.setattr(LocalSide, "draw_ids", spy)
    names = (ACTIVE, PASSIVES[0])
    given = {name: GIVEN[name].sort_by("id").slice(0, 200) for name in names}
    job = job_of(ids=False)
    train(tmp_path, "a", given, job)

    def hidden(ids: Tensor) -> Tensor:
        changed = ids.clone()
        changed[7] = 0
        return changed

    tamper(monkeypatch, Kind.IDS, with_tensors(hidden))
    train(tmp_path, "b", given, job)
    assert len(found[0]) == 200
    assert len(found[1]) == 199
    assert found[1] < found[0]
