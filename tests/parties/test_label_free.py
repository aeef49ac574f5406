"""Nothing that depends on a label crosses to a party that releases once, and the job says so."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cutlayer.accounting import LabelFree, Ledger, NoFormalGuarantee
from cutlayer.channel import Kind, Message, Port
from cutlayer.config import Job, validated
from cutlayer.config.phases import Phase
from cutlayer.data.encoding import Encoder
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError, DataError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.active import ActiveParty
from cutlayer.parties.active_step import ActiveStep
from cutlayer.parties.drive.drive import drive
from cutlayer.parties.drive.random_state import with_own_random_state
from cutlayer.parties.phases import set_up
from cutlayer.parties.session.observer import Observer
from cutlayer.report.build import build_report
from cutlayer.report.markdown import render_markdown
from cutlayer.training.comparisons import compared_jobs
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.model_record import ModelRecord, record_active
from cutlayer.training.run_ledger import chain_of, ledger_of, planned_entries
from cutlayer.training.tables import open_table
from cutlayer.training.together import local_side
from cutlayer.training.trained import Run
from tests.parties.interruptions import Copies, Dying, assert_equal, history, interrupted
from tests.parties.processes import Site, lay_out
from tests.parties.recorded import Recording
from tests.parties.runs import ACTIVE, KEY, MLP, PASSIVES, raw_job, record, run, tables
from tests.parties.threads import run_apart
from tests.report.reading import answers

TELCO, SHOP = PASSIVES[:2]
LINEAR = {"kind": "linear", "width": 3}
GIVEN = tables(passives=2)
STEPS = 4
EARLY = {"patience": 1, "min_delta": 0.001}


def raw(**options: Any) -> dict[str, Any]:
    """Two passive parties that release a sketch once."""
    bottoms = {ACTIVE: MLP, TELCO: LINEAR, SHOP: LINEAR}
    settings = {"epochs": 3, "release": "once", "bottom": bottoms, "audit": {"rows": 64, "attacks": []}} | options
    made = raw_job(passives=2, **settings)
    for name in (TELCO, SHOP):
        if settings["release"] == "once":
            made["parties"][name]["fit"] = {"kind": "sketch"}
            made["parties"][name]["features"] = {"numbers": {"quantiles": 3}}
    return made


def label_free(**options: Any) -> Job:
    return validated(Job, raw(**options), "")


def permuted(given: Mapping[str, pa.Table], seed: int) -> dict[str, pa.Table]:
    """The same tables with the labels of all rows in another order."""
    owner = given[ACTIVE]
    order = np.random.default_rng(seed).permutation(owner.num_rows)
    index = owner.schema.get_field_index("label")
    return {**given, ACTIVE: owner.set_column(index, "label", owner.column("label").take(pa.array(order)))}


def content(message: Message) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in message.tensors.items()}


def crossed(messages: list[Message], party: str) -> list[tuple[Any, ...]]:
    """Everything in the messages that a party sent or received, in order."""
    return [
        (m.kind, m.sender, m.receiver, m.epoch, m.step, m.sequence, m.rows, dict(m.fields), content(m))
        for m in messages
        if party in (m.sender, m.receiver)
    ]


PERMUTED = permuted(GIVEN, 4)
LABELS = {"true": GIVEN, "permuted": PERMUTED}


def both(job: Job, recorded: Recording, party: str = TELCO) -> list[list[tuple[Any, ...]]]:
    """What crosses at a party with the true labels, and with permuted ones."""
    return [crossed(recorded(job, given).messages, party) for given in LABELS.values()]


def test_permuted_labels_change_no_bit_of_any_message(recorded: Recording) -> None:
    """The flag of the best epoch included, which depends on labels at a party that is sent gradients."""
    true, other = both(label_free(), recorded)
    assert {Kind.HELLO, Kind.RELEASE, Kind.EVIDENCE, Kind.CLOSE} <= {message[0] for message in true}
    assert true == other
    folders = [recorded(label_free(), given).folder for given in LABELS.values()]
    top = [load_file(folder / "checkpoint" / ACTIVE / "best.safetensors") for folder in folders]
    assert not all(torch.equal(top[0][key], top[1][key]) for key in top[0] if key.startswith("module/"))


def test_labels_show_in_what_a_party_is_sent_in_every_step(recorded: Recording) -> None:
    """The comparison can fail: another party's gradients differ, and so do its best epochs or its embeddings."""
    job = label_free(release={TELCO: "once"})
    true, other = both(job, recorded, TELCO)
    assert true == other
    true, other = both(job, recorded, SHOP)
    assert true != other


def test_early_stopping_changes_no_bit_of_any_message(recorded: Recording) -> None:
    """The end of the run included: these labels stop at different epochs, and the partners have left before."""
    job = label_free(epochs=12, early_stop=EARLY)
    true, other = both(job, recorded)
    assert true == other
    folders = [recorded(job, given).folder for given in LABELS.values()]
    lengths = [len((folder / "history.jsonl").read_text().splitlines()) for folder in folders]
    assert lengths[0] != lengths[1]


def test_the_partners_have_left_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the time of no message depends on labels either."""
    messages, taken = record(monkeypatch), []
    step = ActiveStep.take

    def take(self: ActiveStep, *arguments: Any) -> Any:
        taken.append(len(messages))
        return step(self, *arguments)

    monkeypatch.setattr(ActiveStep, "take", take)
    run(label_free(early_stop=EARLY), GIVEN, tmp_path)
    assert set(taken) == {len(messages)}
    assert messages[-1].kind == Kind.CLOSE


def test_the_links_are_closed_before_anything_is_done_with_a_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure on labels then reaches no partner, not even one that keeps its link open."""
    seen: list[str] = []
    setup = set_up.ActiveSetup

    def refused(*arguments: Any) -> Any:
        seen.append("labels")
        setup(*arguments)
        raise DataError("these labels are refused")

    def leading(*arguments: Any) -> ActiveParty:
        return ActiveParty(*arguments, when_alone=lambda: seen.append("closed"))

    monkeypatch.setattr(set_up, "ActiveSetup", refused)
    monkeypatch.setattr("cutlayer.training.together.ActiveParty", leading)
    messages = record(monkeypatch)
    with pytest.raises(DataError, match="these labels are refused"):
        run(label_free(), GIVEN, tmp_path)
    assert seen == ["closed", "labels"]
    assert [message.fields["reason"] for message in messages if message.kind == Kind.CLOSE] == ["done"] * 4


def of_one_label(given: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The same tables, but the partners' have the rows of one label alone."""
    owner = given[ACTIVE]
    ids = owner.filter(pc.equal(owner["label"], "yes"))["id"]
    return {name: table.filter(pc.is_in(table["id"], ids)) for name, table in given.items()} | {ACTIVE: owner}


def test_rows_that_all_have_one_label_fail_for_no_partner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partner that offers a row beside others whose label it knows would read that row's label from the failure."""
    equal = of_one_label(GIVEN)
    mixed = {**equal, ACTIVE: permuted(GIVEN, 4)[ACTIVE]}
    found = []
    for name, given, failure in (("mixed", mixed, nullcontext()), ("equal", equal, pytest.raises(DataError))):
        with monkeypatch.context() as patched, failure:
            messages = record(patched)
            run(label_free(), given, tmp_path / name)
        found.append(crossed(messages, TELCO))
    assert found[0] == found[1]
    assert found[0][-1][0] == Kind.CLOSE


def test_rows_that_all_have_weight_0_fail_for_no_partner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights often follow the labels."""
    made = raw()
    made["parties"][ACTIVE]["weight"] = "weight"
    found = []
    for name, weight, failure in (("some", 1.0, nullcontext()), ("none", 0.0, pytest.raises(DataError))):
        given = of_one_label(permuted(GIVEN, 4))
        offered = pc.equal(permuted(GIVEN, 4)[ACTIVE]["label"], "yes")
        given[ACTIVE] = GIVEN[ACTIVE].append_column("weight", pc.if_else(offered, weight, 2.0))
        with monkeypatch.context() as patched, failure:
            messages = record(patched)
            run(validated(Job, made, ""), given, tmp_path / name)
        found.append(crossed(messages, TELCO))
    assert found[0] == found[1]


def test_drawn_labels_fail_for_no_reason_of_the_true_ones(tmp_path: Path) -> None:
    job = label_free(release="every_step", epochs=1, privacy={"label_dp": {"eps": 1.0}})
    assert run(job, of_one_label(GIVEN), tmp_path).active.epochs == 1


def test_a_resume_of_the_active_party_needs_no_partner(tmp_path: Path, whole: Any) -> None:
    """All that the partners send is in its folder: it goes on with the same numbers, alone."""
    job = label_free()
    interrupted(job, GIVEN, tmp_path, Dying(6))
    folder = RunFolder(tmp_path)
    table = open_table(job, ACTIVE, GIVEN)
    local = local_side(job, ACTIVE, folder, folder.path / "data", Keys(tmp_path, KEY), table, resume=True)
    party = ActiveParty(job, local, {}, Observer())
    assert party.partners is not None
    outcome = drive(with_own_random_state(party.run(), local.starting_key, local.device), no_message)
    assert torch.equal(outcome.logits, whole[1].active.logits)
    assert outcome.evidence == whole[1].active.evidence
    record_active(folder, party)
    assert ModelRecord.read(tmp_path / "checkpoint" / ACTIVE / "model.json").training in party.partners.runs.values()


def no_message(port: Port) -> Message:
    raise AssertionError(f"a message from {port.peer} is waited for")


def test_the_end_of_a_party_that_is_sent_gradients_depends_on_labels(recorded: Recording) -> None:
    job = label_free(epochs=12, early_stop=EARLY, release={TELCO: "once"})
    true, other = both(job, recorded)
    ends = [[message for message in messages if message[0] == Kind.EPOCH_END] for messages in (true, other)]
    assert len(ends[0]) != len(ends[1])  # these labels stop at different epochs
    shared = min(true.index(ends[0][-1]), other.index(ends[1][-1]))
    assert true[:shared] == other[:shared]
    assert {message[7]["best"] for message in (*ends[0], *ends[1])} == {True}


@pytest.mark.parametrize("options", [{"keep": "last"}, {"split": {"test": 0.3, "validation": 0}}], ids=["last", "test"])
def test_the_best_epoch_is_sent_only_where_a_run_ends_with_it(recorded: Recording, options: dict[str, Any]) -> None:
    """It is a function of held-out labels, of the test rows too where there are no validation rows."""
    job = label_free(release="every_step", **options)
    for messages in both(job, recorded):
        assert [m[7] for m in messages if m[0] == Kind.EPOCH_END] == [
            {"stop": end == 2, "best": True} for end in range(3)
        ]


def test_the_ledger_states_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ledger_of(label_free())
    (entry,) = ledger.entries
    assert (entry.protection, entry.party, entry.towards) == ("label_free", ACTIVE, (TELCO, SHOP))
    assert entry.event == LabelFree()
    assert "zero by construction" in entry.statement
    (total,) = ledger.totals
    assert (total.epsilon, total.delta) == (0.0, 0.0)
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert ledger_of(label_free(early_stop=EARLY)).entries == ledger.entries
    by_income = {"by": "income", "test": 0.3, "validation": 0}
    ordered, split = ledger_of(label_free(split=by_income | {"public": True})).entries
    assert ordered.event == LabelFree(split_by="income")
    assert (split.protects, split.towards) == ("features", (TELCO, SHOP))
    labels, split = ledger_of(label_free(split=by_income)).entries
    assert (labels.protection, labels.protects, labels.towards) == ("split", "labels", (TELCO, SHOP))
    assert isinstance(labels.event, NoFormalGuarantee)
    (half,) = ledger_of(label_free(release={TELCO: "once"})).entries
    assert half.towards == (TELCO,)
    assert isinstance(half.event, NoFormalGuarantee)
    assert "no message but the end of the run depends on labels" in half.statement
    assert not ledger_of(label_free(release="every_step")).entries


ORDER = "given which rows have the largest values of 'income', stated to be public"
LABELLED = "given which rows have a label"


@pytest.mark.parametrize(("privacy", "eps"), [({"label_free": None}, 0), ({"label_dp": {"eps": 1.0}}, 1)])
@pytest.mark.parametrize(
    ("public", "unlabelled", "condition"),
    [
        (None, "drop", LABELLED),
        (True, "refuse", ORDER),
        (True, "drop", f"{LABELLED} and {ORDER}"),
        (None, "refuse", "unconditional"),
    ],
)
def test_a_total_over_labels_states_what_it_is_given(
    privacy: dict[str, Any], eps: int, public: bool | None, unlabelled: str, condition: str
) -> None:
    made = raw(release="once" if "label_free" in privacy else "every_step", privacy=privacy)
    made["parties"][ACTIVE]["unlabelled"] = unlabelled
    if public:
        made["train"]["split"] = {"by": "income", "public": True, "test": 0.3, "validation": 0}
    job = validated(Job, made, "")
    check_job(job)
    total = next(total for total in ledger_of(job).totals if total.protects == "labels")
    assert (total.condition, total.epsilon) == (condition, eps)
    stated = "" if condition == "unconditional" else f", {condition}"
    assert total.statement.endswith(f"epsilon {eps} per row{stated}")
    entry = next(entry for entry in ledger_of(job).entries if entry.protects == "labels")
    assert (condition in entry.statement) is (condition != "unconditional")
    stored = Ledger.from_json(ledger_of(job).to_json())
    both = stored.merged(ledger_of(label_free(privacy=privacy))) if condition != "unconditional" else stored
    assert next(total for total in both.totals if total.protects == "labels").condition == condition


def test_no_total_over_labels_has_an_epsilon_where_the_split_may_follow_them() -> None:
    split = {"by": "income", "test": 0.3, "validation": 0}
    for options in ({}, {"release": "every_step", "privacy": {"label_dp": {"eps": 1.0}}}):
        job = label_free(split=split, **options)
        for ledger in (ledger_of(job), Ledger(planned_entries(job, ACTIVE, chain_of(job, ACTIVE)))):
            (total,) = (total for total in ledger.totals if total.protects == "labels")
            assert total.epsilon is None
            assert "the split shows which rows have the largest values of 'income'" in total.why


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"release": "every_step"}, "privacy.label_free: no party that is sent gradients, got telco in every step"),
        ({"release": {TELCO: "once"}}, "got shop in every step; write train.release: once"),
        ({"warmup_epochs": 1}, "got telco in warm-up epochs; .* without warmup_epochs"),
    ],
)
def test_the_condition_is_refused_where_a_party_is_sent_gradients(options: dict[str, Any], match: str) -> None:
    made = raw(**options)
    check_job(validated(Job, made, ""))
    made["parties"][ACTIVE]["privacy"] = {"label_free": None}
    with pytest.raises(ConfigError, match=match):
        check_job(validated(Job, made, ""))


def test_the_condition_has_no_settings_and_is_the_label_owners() -> None:
    check_job(label_free(privacy={"label_free": None}))
    check_job(label_free(privacy={"label_free": {}, "label_dp": {"eps": 1.0}}))
    with pytest.raises(ConfigError, match=r"privacy\.label_free\.eps: unknown key"):
        check_job(label_free(privacy={"label_free": {"eps": 1}}))
    made = raw()
    made["parties"][TELCO]["privacy"] = {"label_free": {}}
    with pytest.raises(ConfigError, match=r"label_free at the active party.*got it at telco; move it to parties\.bank"):
        check_job(validated(Job, made, ""))


@pytest.mark.parametrize("width", [0, 70_000])
def test_a_cut_of_no_width_is_refused(width: int) -> None:
    with pytest.raises(ConfigError, match=r"model\.bottom.*width"):
        check_job(label_free(bottom={ACTIVE: MLP, TELCO: {"kind": "linear", "width": width}, SHOP: LINEAR}))


@pytest.fixture(scope="module")
def whole(recorded: Recording) -> Any:
    made = recorded(label_free(), GIVEN)
    return made.folder, made.trained


def test_a_resume_has_the_same_embeddings(tmp_path: Path, whole: Any) -> None:
    interrupted(label_free(), GIVEN, tmp_path, Dying(6))
    assert_equal(tmp_path, run(label_free(), GIVEN, tmp_path, resume=True), *whole, label_free())
    assert torch.equal(released(tmp_path, TELCO), released(whole[0], TELCO))


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Site], Path]:
    """The organisations of a run that has ended, and what the active one leaves that is killed in its last epoch."""
    sites = lay_out(tmp_path_factory.mktemp("apart"), raw(), GIVEN)
    copies = Copies(sites[ACTIVE].run)
    run_apart(sites, progress={ACTIVE: copies.steps(2 * STEPS + 1)})
    (left,) = copies.left.values()
    return sites, left


def test_organisations_have_the_same_embeddings(apart: tuple[dict[str, Site], Path], whole: Any) -> None:
    assert torch.equal(released(apart[0][TELCO].run, TELCO), released(whole[0], TELCO))


def test_a_killed_active_party_resumes_when_the_partners_are_gone(
    apart: tuple[dict[str, Site], Path], tmp_path: Path, whole: Any
) -> None:
    sites, left = apart
    assert len(history(left)) == 2
    bank = Site(ACTIVE, tmp_path / ACTIVE)
    shutil.copytree(sites[ACTIVE].folder, bank.folder, ignore=shutil.ignore_patterns("run*"))
    shutil.copytree(left, bank.run)
    run_apart({ACTIVE: bank}, resume=True)
    mine, theirs = (load_file(run / "checkpoint" / ACTIVE / "epoch-0002.safetensors") for run in (bank.run, whole[0]))
    assert all(torch.equal(mine[name], tensor) for name, tensor in theirs.items() if name.startswith("module/"))


def test_serving_embeds_a_row_as_it_was_released_and_takes_rows_that_are_new(whole: Any) -> None:
    """A prediction encodes by the stored encoder and the stored weights; unknown values and missing ones have codes."""
    folder, trained = whole
    stored = Run(label_free(), RunFolder(folder), classes=trained.active.task.classes)
    bottom = stored.bottom(TELCO)
    encoder = Encoder.from_json((RunFolder(folder).data(TELCO) / "encoder.json").read_text())
    store = PartyTable(TELCO, GIVEN[TELCO], "id", encoder=encoder).encode_all()
    everything = torch.arange(store.rows)
    embedded: Tensor = bottom(*store.gather(everything)).detach()
    sent = released(folder, TELCO)
    distances = torch.cdist(sent, embedded, compute_mode="donot_use_mm_for_euclid_dist").min(dim=1).values
    assert float(distances.max()) < 1e-5
    names = GIVEN[TELCO].column_names
    new = {name: pa.array([1, 2] if name == "id" else ["z", None] if "kind" in name else [1e9, None]) for name in names}
    strange = PartyTable(TELCO, pa.table(new), "id", encoder=encoder).encode_all()
    assert bool(bottom(*strange.gather(torch.arange(2))).isfinite().all())


def released(folder: Path, party: str) -> Tensor:
    return load_file(folder / "checkpoint" / party / "released.safetensors")["released"]


def test_the_key_of_the_test_is_used(whole: Any, tmp_path: Path) -> None:
    """Another key turns the rows another way: the embeddings above are equal because the keys are."""
    run(label_free(), GIVEN, tmp_path, key=KEY[::-1])
    assert not torch.allclose(released(tmp_path, TELCO), released(whole[0], TELCO), atol=0.1)


def test_the_undefended_baseline_is_trained_end_to_end() -> None:
    """Releasing once is the defence, so a baseline that releases once too would hide what it buys."""
    made = raw()
    made["parties"][ACTIVE]["privacy"] = {"label_free": None}
    job = validated(Job, {**made, "compare": ["undefended", "each"]}, "")
    ((run_id, other),) = compared_jobs(job)
    assert run_id.label == "undefended"
    assert not any(Phase.RELEASE in other.phases_of(name) for name in (TELCO, SHOP))
    assert all(party.fit is None and not party.privacy for party in other.parties.values())
    assert other.model == job.model
    check_job(other)
    without = validated(Job, {**raw(), "compare": ["undefended"]}, "")
    assert not list(compared_jobs(without))


def test_what_the_condition_buys_is_measured_against_that_baseline(tmp_path: Path) -> None:
    """Attacks on gradients have results where gradients crossed, and are not "not run" where none did."""
    made = raw(epochs=2, batch_size=96)
    made["parties"][ACTIVE] |= {
        "privacy": {"label_free": None},
        "audit": {"attacks": ["joint_spectral", "bilinear", "directions"]},
    }
    made["parties"][TELCO]["audit"] = {"attacks": ["inversion"]}
    job = validated(Job, {**made, "compare": ["undefended"]}, "")
    report = build_report(execute(job, tmp_path / "run", Options(Keys(tmp_path, KEY), tables=GIVEN), Progress()).path)
    assert {leak.message for leak in report.leaks if leak.run == "this run"} == {"embedding"}
    assert {leak.message for leak in report.leaks if leak.run == "undefended"} == {"embedding", "gradient"}
    assert max(leak.leak for leak in report.leaks if leak.run == "undefended") > 0.95
    assert {leak.protections for leak in report.leaks if leak.run == "this run"} == {("label_free",)}
    assert {result.run for result in report.features} == {"this run", "undefended"}
    assert not [finding for finding in report.findings if finding.code == "CL107"]
    assert "none sent" in render_markdown(report)
    assert any(f"No message to {TELCO}, {SHOP} depends on a label" in answer.text for answer in answers(report))
