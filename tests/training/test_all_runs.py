"""The ledger of all runs: sums that no removed folder, older copy or second secret makes smaller."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cutlayer.accounting import (
    DPSGD,
    Composition,
    Entry,
    GaussianRelease,
    Ledger,
    NoFormalGuarantee,
    RandomizedResponse,
    ReleasePlan,
)
from cutlayer.accounting.run_store import LEDGER_FILE, RunLine, RunStore, row_words, rows_digest
from cutlayer.cli.app import _run
from cutlayer.config import BudgetConfig, IdConfig, Job, SplitConfig, validated
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import BudgetExceeded, CheckpointError, ConfigError
from cutlayer.protections import REGISTRY
from cutlayer.training.all_runs import AllRuns, forecast_all_runs
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.run_sums import check_budget, lines_of_party, renamed_lines, summed_ledger, warn_of_draws
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together
from tests.parties.interruptions import Crash, Dying
from tests.parties.noisy import Noisy
from tests.parties.runs import ACTIVE, PASSIVES, raw_job, tables

TELCO = PASSIVES[0]
GIVEN = tables()


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "noisy", Noisy)  # type: ignore[arg-type]


def job(eps: float | None = 1.0, budget: float | None = None, telco: float | None = 4.0, **more: Any) -> Job:
    privacy: dict[str, Any] = {} if eps is None else {"label_dp": {"eps": eps, **more}}
    if budget is not None:
        privacy["budget"] = {"epsilon": budget, "over": "all_runs"}
    raw = raw_job(privacy=privacy, audit={"every": "never"}, epochs=1, batch_size=96)
    if telco is not None:
        raw["parties"][TELCO]["privacy"] = {"noisy": {"multiplier": telco}}
    return validated(Job, raw, "")


class World:
    """Runs that share the folder of their secrets."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.secrets, self.count = folder, folder / "keys", 0

    def run(
        self,
        wanted: Job,
        given: Any = GIVEN,
        *,
        out: str = "",
        progress: Any = None,
        resume: bool = False,
        pilot: int = 0,
    ) -> Path:
        self.count += 1
        folder = self.folder / (out or f"run-{self.count}")
        folder.mkdir(exist_ok=True)
        opened = {name: open_table(wanted, name, given) for name in wanted.parties}
        keys = Keys(self.secrets)
        watched = progress or Dying(10**6)
        train_together(wanted, RunFolder(folder), opened, keys, watched, resume=resume, pilot=pilot)
        return folder

    def lines(self, party: str) -> list[RunLine]:
        return [line for line in RunStore(self.secrets / LEDGER_FILE).lines() if line.party == party]

    def total(self, party: str) -> float | None:
        lines = self.lines(party)
        return summed_ledger(RunStore(self.secrets / LEDGER_FILE).sharing(lines[-1], lines)).totals[0].epsilon


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


ROW_WORDS = row_words(np.ones((1, 16), np.uint8))
DRAWN = Entry("label_dp", ACTIVE, "labels", (TELCO,), RandomizedResponse(1.0, 2), fingerprint="draws")
NOISY = Entry("noisy", ACTIVE, "features", (TELCO,), GaussianRelease(4.0, ReleasePlan(3)))
STEPS = Entry("steps", ACTIVE, "features", (TELCO,), DPSGD(8.0, 5))


def line_of(run: str, *entries: Entry, source: str = "s") -> RunLine:
    return RunLine(run, ACTIVE, "job", source, rows_digest(ROW_WORDS), 1, "p", Ledger(entries))


def test_a_sum_is_of_runs_of_which_each_covers_itself() -> None:
    """What one run released as it is, no other run's noise hides; and epsilon is at the smallest delta, or as asked."""
    bare = replace(NOISY, event=NoFormalGuarantee("as it is"))
    assert [total.epsilon for total in summed_ledger([line_of("a", NOISY), line_of("b", bare)]).totals] == [None]
    lines = [line_of("a", replace(NOISY, delta=1e-3)), line_of("b", replace(NOISY, delta=1e-6))]
    twice = replace(NOISY.event, releases=ReleasePlan(6))
    for given, delta in ((None, 1e-6), (1e-2, 1e-2)):
        (total,) = summed_ledger(lines, given).totals
        assert (total.delta, total.epsilon) == (delta, Composition.of([twice]).epsilon(delta))


def test_another_rule_for_ids_makes_no_other_rows_of_them(world: World) -> None:
    """A partner that is asked to write `id.normalise` otherwise has the sum of both runs, and its budget stops it."""

    def spelled(rule: str, seed: int, budget: float = 100.0) -> Job:
        raw = raw_job(audit={"every": "never"}, epochs=1, batch_size=96, seed=seed)
        limit = {"epsilon": budget, "over": "all_runs"}
        raw["parties"][TELCO] |= {"privacy": {"noisy": {"multiplier": 4.0}, "budget": limit}}
        for party in raw["parties"].values():
            party["id"] = {"column": "id", "normalise": rule}
        return validated(Job, raw, "")

    given = {
        name: table.set_column(0, "id", pa.array([f"Mr {row}" for row in table["id"].to_pylist()]))
        for name, table in GIVEN.items()
    }
    world.run(spelled("strip", 0), given)
    once = world.total(TELCO)
    assert once is not None
    with pytest.raises(BudgetExceeded, match="over 2 runs"):
        world.run(spelled("lower", 1, budget=1.01 * once), given)
    world.run(spelled("lower", 1), given)
    assert world.total(TELCO) > 1.2 * once  # type: ignore[operator]
    assert len({line.count for line in world.lines(TELCO)}) == 1


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(
    ("one", "other", "rule"),
    [
        ("AB", " ab ", "lower"),
        ("007", "7", "integer"),
        ("7.0", "7", "integer"),
        ("7.0", "7.0", "integer"),
        ("+49 89 1234567", "004989-1234567", "e164"),
        ("é", "É", "lower"),
    ],
)
def test_ids_that_some_rule_takes_for_one_have_a_form_in_common(one: str, other: str, rule: str, columns: int) -> None:
    """A run with the rule `strip` and one with the other are of the same row."""
    forms = []
    for text, rules in ((one, "strip"), (other, rule)):
        names = tuple("ab"[:columns])
        ids = IdConfig(column=names, normalise=(rules, *["strip"] * (columns - 1)))
        table = PartyTable("bank", pa.table({"a": [text], "b": ["Ann"], "x": [1.0]}), ids)
        forms.append({row.tobytes() for row in table.all_spellings(table.digests)})
    assert forms[0] & forms[1]


def test_a_budget_of_all_runs_is_of_every_asset_and_receiver_at_its_own_delta() -> None:
    lines = [line_of(run, DRAWN, replace(NOISY, towards=(TELCO, "shop"), delta=0.5)) for run in "ab"]
    noise = Composition.of([replace(NOISY.event, releases=ReleasePlan(6))])
    for delta in (1e-6, 1e-2):
        enough = noise.epsilon(delta)
        check_budget(ACTIVE, lines, BudgetConfig(epsilon=enough, delta=delta, over="all_runs"))
        check_budget(ACTIVE, lines, BudgetConfig(epsilon=0.99 * enough, delta=delta))
        check_budget(ACTIVE, lines, None)
        for order in (lines, [replace(line, ledger=Ledger(line.ledger.entries[::-1])) for line in lines]):
            with pytest.raises(BudgetExceeded, match=f"at delta {delta:g} over 2 runs towards telco, shop; nothing"):
                check_budget(ACTIVE, order, BudgetConfig(epsilon=0.99 * enough, delta=delta, over="all_runs"))


def test_lines_of_another_party_of_a_run_are_no_cost_of_this_one() -> None:
    mine, theirs = line_of("a", DRAWN), replace(line_of("a", NOISY), party=TELCO)
    assert lines_of_party(ACTIVE, [theirs, mine, theirs]) == [mine]
    assert renamed_lines(ACTIVE, [theirs, mine]) == []


def test_other_draws_are_named_wherever_they_are_in_a_line() -> None:
    other = line_of("b", NOISY, replace(DRAWN, fingerprint="other"), source="t")
    with pytest.warns(UserWarning, match=r"under another secret.*by 2 runs.*epsilon 2 in all"):
        warn_of_draws(line_of("a", NOISY, DRAWN), [line_of("same", DRAWN), other, replace(other, run="c", source="s")])
    warn_of_draws(line_of("a", NOISY, DRAWN), [line_of("same", DRAWN)])
    warn_of_draws(line_of("a", NOISY), [other])


def test_a_run_that_exceeds_its_plan_is_counted_beyond_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first release beyond the plan; the line takes the place of that of the plan, also after a resume."""
    monkeypatch.setattr("cutlayer.training.all_runs.planned_entries", lambda *_: (DRAWN, NOISY, STEPS))
    chain: Any = SimpleNamespace(budget=None)
    for start in range(2):
        store, marker = RunStore(tmp_path / LEDGER_FILE), tmp_path / "a" / "b" / "c.json"
        run = AllRuns(job(), ACTIVE, chain, store, marker, tmp_path / "bank.key.releases", "run", "s", np.copy)
        run.charge_beyond_plan(2, 4)
        assert len(RunStore(tmp_path / LEDGER_FILE).lines()) == start, "it names no rows before it is set up"
        run.set_up(np.ones((1, 16), np.uint8), lambda: "draws")
        run.charge_beyond_plan(2, 4)
        (line,) = RunStore(tmp_path / LEDGER_FILE).lines()
        drawn, noisy, steps = (entry.event for entry in line.ledger.entries)
        assert isinstance(noisy, GaussianRelease)
        assert (drawn, noisy.releases.max_releases, steps) == (DRAWN.event, 5, DPSGD(8.0, 9))


def test_labels_cost_once_and_noise_adds_up(world: World) -> None:
    world.run(job())
    shutil.rmtree(world.run(job()))
    assert world.total(ACTIVE) == 1.0
    (one,) = summed_ledger(world.lines(TELCO)[:1]).totals
    (both,) = summed_ledger(world.lines(TELCO)).totals
    assert one.releases == 1
    assert both.releases == 2 == len(world.lines(TELCO))
    assert both.epsilon == world.total(TELCO)
    assert one.epsilon < both.epsilon


def test_another_eps_or_secret_adds_up_with_a_warning(world: World) -> None:
    world.run(job())
    with pytest.warns(UserWarning, match="drawn before, with other draws .by one run.*epsilon 3 in all"):
        world.run(job(eps=2.0))
    (world.secrets / f"{ACTIVE}.key").unlink()
    shutil.rmtree(world.secrets / f"{ACTIVE}.key.labels")
    with pytest.warns(UserWarning, match="under another secret.*epsilon 4 in all"):
        world.run(job())
    assert world.total(ACTIVE) == 4.0


def test_an_unprotected_run_leaves_no_sum(world: World) -> None:
    world.run(job())
    world.run(job(eps=None, telco=None))
    assert world.total(ACTIVE) is world.total(TELCO) is None


def test_rows_that_no_run_shares_have_sums_of_their_own(world: World) -> None:
    others = {name: table.set_column(0, "id", pc.add(table["id"], 10**6)) for name, table in GIVEN.items()}
    one_more = {n: pa.concat_tables([t, GIVEN[n].filter(pc.equal(GIVEN[n]["id"], 1100))]) for n, t in others.items()}
    world.run(job())
    world.run(job(), others)
    store, lines = RunStore(world.secrets / LEDGER_FILE), world.lines(TELCO)
    assert [len(store.sharing(line, lines)) for line in lines] == [1, 1]
    world.run(job(), one_more)
    lines = world.lines(TELCO)
    assert [len(store.sharing(line, lines)) for line in lines] == [2, 2, 3]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_counts_once_and_in_full_however_it_ends(world: World, steps: int) -> None:
    for resume in (False, True, True):
        with pytest.raises(Crash):
            world.run(job(), out="same", progress=Dying(steps), resume=resume)
        assert len(world.lines(TELCO)) == len(world.lines(ACTIVE)) == 1
    alone = world.total(TELCO)
    world.run(job(), out="same", resume=True)
    assert len(world.lines(TELCO)) == 1
    assert world.total(TELCO) == alone


def test_the_line_is_on_disk_before_anything_is_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunStore, "add", _crash)
    seen: list[str] = []
    monkeypatch.setattr("cutlayer.channel.Port.deliver", _noting(seen))
    with pytest.raises(Crash):
        world.run(job())
    assert seen
    assert not {"embedding", "evaluation", "gradient", "release", "epoch_end"} & {*seen}


@pytest.mark.parametrize("split", [{"stratify": True}, {"by": "bank_0"}])
def test_a_split_counts_before_it_is_sent(world: World, monkeypatch: pytest.MonkeyPatch, split: dict[str, Any]) -> None:
    """A peer that ends every run after the split would have one that the ledger does not name."""
    wanted = job(eps=None)
    wanted = wanted.model_copy(
        update={"train": wanted.train.model_copy(update={"split": SplitConfig(test=0.2, validation=0.2, **split)})}
    )
    world.run(wanted)
    assert len(world.lines(ACTIVE)) == 1, "the split and the gradients of a run have one line"
    monkeypatch.setattr(RunStore, "add", _crash)
    seen: list[str] = []
    monkeypatch.setattr("cutlayer.channel.Port.deliver", _noting(seen))
    with pytest.raises(Crash):
        world.run(wanted)
    assert seen
    assert "split" not in seen


def test_a_split_counts_before_it_is_sent_although_the_draws_come_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = SplitConfig(test=0.2, validation=0.2, by="bank_0", public=True)
    wanted = job()
    wanted = wanted.model_copy(update={"train": wanted.train.model_copy(update={"split": split})})
    sent: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr("cutlayer.channel.Port.deliver", _noting(sent, until="embedding"))
        with pytest.raises(Crash):
            world.run(wanted)
    assert "split" in sent
    (line,) = world.lines(ACTIVE)
    assert [(entry.protection, entry.protects) for entry in line.ledger.entries] == [("split", "features")]
    sent.clear()
    monkeypatch.setattr("cutlayer.channel.Port.deliver", _noting(sent))
    with pytest.raises(BudgetExceeded, match=r"largest values.*nothing was sent"):
        world.run(job(budget=9.0).model_copy(update={"train": wanted.train}))
    assert "split" not in sent


def _crash(*_: object, **__: object) -> None:
    raise Crash


def _noting(seen: list[str], until: str = "") -> Any:
    from cutlayer.channel import Port

    deliver = Port.deliver

    def note(self: Port, message: Any) -> None:
        seen.append(message.kind.value)
        if message.kind.value == until:
            raise Crash
        deliver(self, message)

    return note


def test_a_budget_of_all_runs(world: World) -> None:
    world.run(job(budget=1.0))
    world.run(job(budget=1.0))  # the same draws
    with pytest.raises(BudgetExceeded, match=r"same rows to cost epsilon 2\.5 at most.*got 3 .*3 runs"):
        world.run(job(eps=2.0, budget=2.5))
    assert world.total(ACTIVE) == 1.0
    with pytest.raises(BudgetExceeded, match="got 3"):
        forecast(world, job(eps=2.0, budget=2.5))
    assert forecast(world, job(budget=1.0)) == 1.0
    assert forecast(world, job(changed_labels="redraw")) == 2.0
    world.run(job(eps=None))
    with pytest.raises(BudgetExceeded, match="one without a guarantee towards telco: nothing protects the labels"):
        world.run(job(budget=9.0))


def test_a_refused_run_has_released_nothing(world: World) -> None:
    """Its first release was counted before it was refused, and every later run of the job paid for it."""
    raw = job(eps=None).model_dump(mode="json")
    world.run(validated(Job, raw, ""))
    (before,) = world.secrets.rglob("*.jsonl")
    raw["parties"][TELCO]["privacy"]["budget"] = {"epsilon": 1.01 * (world.total(TELCO) or 0), "over": "all_runs"}
    with pytest.raises(BudgetExceeded, match="over 2 runs"):
        world.run(validated(Job, raw, ""), out="refused")
    assert [*world.secrets.rglob("*.jsonl")] == [before]
    assert not RunFolder(world.folder / "refused").has_release, "nothing to be resumed"


def test_a_budget_of_all_runs_needs_runs_that_are_counted(world: World) -> None:
    keys = Keys(world.secrets, supplied=bytes(32))
    wanted = job(budget=1.0)
    opened = {name: open_table(wanted, name, GIVEN) for name in wanted.parties}
    with pytest.raises(ConfigError, match="leave --key out, or the budget"):
        train_together(wanted, RunFolder(world.folder), opened, keys, Dying(10**6))


def forecast(world: World, wanted: Job, given: Any = GIVEN) -> float | None:
    """What `check` says about all runs of the active party, with one of this job."""
    table = open_table(wanted, ACTIVE, given)
    positions = np.argsort([bytes(digest) for digest in table.digests], kind="stable")
    (total,) = forecast_all_runs(wanted, ACTIVE, world.secrets, table, positions)
    return total.epsilon


def without_ids(wanted: Job) -> Job:
    parties = {name: party.model_copy(update={"id": None}) for name, party in wanted.parties.items()}
    return wanted.model_copy(update={"parties": parties})


BANK = GIVEN[ACTIVE]
ROWS = {name: table.drop_columns(["id"]).slice(0, 200) for name, table in GIVEN.items()}
SWAPPED = pa.array(["no" if label == "yes" else "yes" for label in ROWS[ACTIVE]["label"].to_pylist()])


@pytest.mark.parametrize("what", ["nothing", "memory", "column", "labels of row numbers"])
def test_the_forecast_is_what_the_run_then_counts(world: World, what: str) -> None:
    """An earlier run with the same eps and secret is not enough for labels to be drawn alike."""
    wanted, given = job(), GIVEN
    if what == "labels of row numbers":
        wanted, given = without_ids(job(changed_labels="redraw")), ROWS
    world.run(wanted, given)
    assert forecast(world, wanted, given) == 1.0
    if what == "memory":
        shutil.rmtree(world.secrets / f"{ACTIVE}.key.labels")
    elif what == "column":
        bank = wanted.parties[ACTIVE].model_copy(update={"label": "second"})
        wanted = wanted.model_copy(update={"parties": {**wanted.parties, ACTIVE: bank}})
        given = {**given, ACTIVE: BANK.append_column("second", BANK["label"])}
    elif what == "labels of row numbers":
        index = given[ACTIVE].schema.get_field_index("label")
        given = {**given, ACTIVE: given[ACTIVE].set_column(index, "label", SWAPPED)}
    expected = forecast(world, wanted, given)
    assert expected == (1.0 if what == "nothing" else 2.0)
    if what == "nothing":
        world.run(wanted, given)
    else:
        with pytest.warns(UserWarning, match="drawn before, with other draws"):
            world.run(wanted, given)
    assert world.total(ACTIVE) == expected


def test_a_run_counts_towards_its_own_parties_alone(world: World) -> None:
    """A partner that an earlier run did not have was sent nothing in it: that is no unprotected release."""
    given, both = tables(passives=2), job(budget=1.0)
    shop = both.parties[TELCO]
    world.run(both, given)
    parties = {ACTIVE: both.parties[ACTIVE], "shop": shop}
    world.run(both.model_copy(update={"parties": parties}), given)
    lines = world.lines(ACTIVE)
    assert [(total.towards, total.epsilon) for total in summed_ledger(lines).totals] == [
        ((TELCO,), 1.0),
        (("shop",), 1.0),
    ]


def called(wanted: Job, old: str, new: str) -> Job:
    parties = {new if name == old else name: party for name, party in wanted.parties.items()}
    return wanted.model_copy(update={"parties": parties})


def test_a_budget_counts_runs_under_another_name(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A name is of a job: the same organisation, with its secrets in the same folder, may have two."""
    world.run(job())
    given = {**GIVEN, "credit": GIVEN[ACTIVE], "mobile": GIVEN[TELCO]}
    wanted = called(job(budget=1.5), ACTIVE, "credit")
    with pytest.raises(BudgetExceeded, match=r"got 2 at delta .* 2 runs \(bank may be its other names\) towards telco"):
        world.run(wanted, given)
    table = open_table(wanted, "credit", given)
    positions = np.arange(table.rows)
    with pytest.raises(BudgetExceeded, match="bank may be its other names"):
        list(forecast_all_runs(wanted, "credit", world.secrets, table, positions))
    world.run(called(job(), TELCO, "mobile"), given)
    assert not capsys.readouterr().out
    assert _run(["ledger", str(world.secrets)]) == 0
    page = capsys.readouterr().out
    assert "as telco; if that is mobile under another name, the costs add up" in page
    assert "that is bank under" not in page, "the partners of one run are different parties"


def test_partners_are_no_other_names(world: World) -> None:
    given, both = tables(passives=2), job(budget=1.0)
    parties = {**both.parties, "shop": both.parties[TELCO]}
    wanted = both.model_copy(update={"parties": parties})
    world.run(wanted, given)
    world.run(wanted, given)
    lines = RunStore(world.secrets / LEDGER_FILE).lines()
    assert [renamed_lines(name, lines) for name in parties] == [[], [], []]


def test_releases_beyond_the_plan_are_added_before_the_first_of_them(world: World) -> None:
    wanted = job()
    folder = world.run(wanted, out="same")
    shutil.rmtree(folder / "checkpoint" / ACTIVE)  # the bank starts again, and labels are drawn alike
    opened = {name: open_table(wanted, name, GIVEN) for name in wanted.parties}
    for name in ("history.jsonl",):
        (folder / name).unlink()
    train_together(
        wanted, RunFolder(folder), opened, Keys(world.secrets), Dying(10**6), resume=True, forget_peer_progress=True
    )
    counted = summed_ledger(world.lines(TELCO)).totals[0].releases
    log = next((world.secrets / f"{TELCO}.key.releases").glob("*/*.jsonl")).read_text()
    assert counted is not None
    assert counted >= 1
    assert ('"number":2' in log) == (counted > 1)


OLDER = {
    "an older copy": lambda path, old: path.write_bytes(old),
    "a removed file": lambda path, old: path.unlink(),
    "an older copy without its note": lambda path, old: (
        path.write_bytes(old),
        path.with_name(f"{LEDGER_FILE}.head").unlink(),
    ),
    "a removed line": lambda path, old: _execute(path, "DELETE FROM runs WHERE number = 1"),
    "a changed line": lambda path, old: _execute(path, "UPDATE runs SET entry = replace(entry, '1.0', '0.1')"),
    "other rows": lambda path, old: _execute(path, "UPDATE rows SET words = x'0000000000000000'"),
    "no database": lambda path, old: path.write_bytes(b"nothing" * 999),
}


@pytest.fixture(scope="module")
def two_lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A ledger of two runs, and the older copy of it with one; not to be changed."""
    store, words = RunStore(tmp_path_factory.mktemp("ledger") / LEDGER_FILE), row_words(np.ones((1, 16), np.uint8))
    copies = []
    for run in ("a", "b"):
        line = RunLine(run, "bank", "job 1.0", "s", rows_digest(words), 1, "p", Ledger(()))
        store.add(line, words, store.path.with_name(f"{run}.json"), lambda others: None)
        copies.append(store.path.read_bytes())
    return store.path, copies[0]


@pytest.mark.parametrize("what", OLDER)
def test_a_ledger_that_was_changed_is_refused(tmp_path: Path, two_lines: tuple[Path, bytes], what: str) -> None:
    folder = shutil.copytree(two_lines[0].parent, tmp_path / "copy")
    store, words = RunStore(folder / LEDGER_FILE), row_words(np.ones((1, 16), np.uint8))
    line = store.lines()[0]
    OLDER[what](folder / LEDGER_FILE, two_lines[1])
    with pytest.raises(CheckpointError, match="restore the latest copy"):
        store.add(replace(line, run="c"), words, folder / "new.json", lambda others: None)
    assert store.path.exists() == (what != "a removed file"), "a new ledger is not begun in its place"
    with pytest.raises(CheckpointError, match="restore the latest copy"):
        store.sharing(line, store.lines())


def test_an_older_copy_of_ledger_and_note_is_refused_by_the_run(world: World) -> None:
    """By its folder, where no note of the secret is left; what is not noticed is an older copy of all of these."""
    world.run(job())
    shutil.copytree(world.secrets, world.folder / "old")
    with pytest.raises(Crash):
        world.run(job(), out="second", progress=Dying(0))
    for name in (LEDGER_FILE, f"{LEDGER_FILE}.head"):
        shutil.copy(world.folder / "old" / name, world.secrets / name)
    for note in world.secrets.glob("*.releases/*.line"):
        note.unlink()
    with pytest.raises(CheckpointError, match=r"all_runs.json says, got none or another"):
        world.run(job(), out="second", resume=True)


@pytest.mark.parametrize("how", ["both", "both removed", "the whole folder is laid over"])
def test_an_older_copy_of_ledger_and_head_is_refused_by_the_notes_of_the_secret(world: World, how: str) -> None:
    """Also of a label owner without a log, by any run and by the verb; the difference is named."""
    world.run(job(), out="first")
    shutil.copytree(world.secrets, world.folder / "old")
    with pytest.warns(UserWarning, match="labels of the same rows were drawn before"):
        world.run(job(eps=2.0), out="second")
    if how == "the whole folder is laid over":
        shutil.copytree(world.folder / "old", world.secrets, dirs_exist_ok=True)
    for name in (LEDGER_FILE, f"{LEDGER_FILE}.head"):
        (world.secrets / name).unlink()
        if how != "both removed":
            shutil.copy(world.folder / "old" / name, world.secrets / name)
    lost, left = (4, 0) if how == "both removed" else (2, 2)
    difference = (
        rf"4 lines or more .* as the notes of {lost} runs say, .*\.releases/\w+\.line, got {left}: an older copy"
    )
    with pytest.raises(CheckpointError, match=difference):
        world.run(job(eps=3.0), out="third")
    assert _run(["ledger", str(world.secrets)]) == 2
    for party in (ACTIVE, TELCO):
        notes = (world.secrets / f"{party}.key.releases").glob("*.line")
        max(notes, key=lambda path: path.stat().st_mtime_ns).unlink()
    if how != "both removed":  # as the remedy says, knowingly
        assert len(RunStore(world.secrets / LEDGER_FILE).lines()) == 2


def _execute(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()


def test_two_at_once_cannot_both_spend(tmp_path: Path) -> None:
    """The check and the line are one transaction: a second writer waits, and sees the first."""
    store, words = RunStore(tmp_path / LEDGER_FILE), row_words(np.ones((1, 16), np.uint8))
    line = RunLine("a", "bank", "job", "s", rows_digest(words), 1, "p", Ledger(()))
    seen: list[int] = []

    def meanwhile(others: list[RunLine]) -> None:
        seen.append(len(others))
        if len(seen) == 1:
            other = sqlite3.connect(store.path, timeout=0)
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
            other.close()

    store.add(line, words, tmp_path / "a.json", meanwhile)
    store.add(RunLine(**{**vars(line), "run": "b"}), words, tmp_path / "b.json", meanwhile)
    assert seen == [0, 1]
    assert oct((tmp_path / LEDGER_FILE).stat().st_mode & 0o777) == "0o600"


class _Late:
    """A connection whose reader is late: once it has read the lines, another process adds one."""

    def __init__(self, database: sqlite3.Connection, meanwhile: Callable[[], None]) -> None:
        self._database, self._meanwhile = database, meanwhile

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        rows = self._database.execute(statement).fetchall()
        self._meanwhile()
        return rows


@pytest.mark.parametrize("lines", [0, 1])
def test_a_line_that_is_added_while_others_are_read_is_no_older_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """Two runs at once: the second one reads, and the first one notes its line before the second looks for notes."""
    store, words = RunStore(tmp_path / LEDGER_FILE), row_words(np.ones((1, 16), np.uint8))

    def add(run: str) -> None:
        line = replace(line_of(run), rows=rows_digest(words))
        note = tmp_path / "a.key.releases" / f"{run}.line"
        RunStore(store.path).add(line, words, tmp_path / f"{run}.json", lambda _: None, note=note)

    if lines:
        add("first")
        open_store, added = RunStore._open, []

        @contextmanager
        def late(self: RunStore) -> Iterator[Any]:
            with open_store(self) as database:
                yield database if self is not store else _Late(database, lambda: added.append(add("second")))

        monkeypatch.setattr(RunStore, "_open", late)
        assert ([line.run for line in store.lines()], len(added)) == (["first"], 1)
    else:
        noted = RunStore._noted
        monkeypatch.setattr(RunStore, "_noted", lambda self: noted(self) if store.path.exists() else add_and(noted))

        def add_and(_: object) -> dict[Path, dict[str, Any]]:
            monkeypatch.setattr(RunStore, "_noted", noted)
            add("second")
            return store._noted()

        assert [line.run for line in store.lines()] == ["second"]
    monkeypatch.undo()
    assert [line.run for line in RunStore(store.path).lines()] == ["first", "second"][1 - lines :]


def test_the_verb(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.run(job())
    world.run(job())
    assert _run(["ledger", str(world.secrets)]) == 0
    page = capsys.readouterr().out
    assert "all runs, rows" in page
    assert "2 runs share" in page
    assert "towards bank: epsilon" in page
    assert _run(["ledger", str(world.secrets), "--json"]) == 0
    assert '"runs_on_these_rows": 2' in capsys.readouterr().out
    assert _run(["ledger", str(world.folder / "nowhere")]) == 2
    assert "expected a ledger of all runs" in capsys.readouterr().err
