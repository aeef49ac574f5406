"""The chain: order, exclusion, coverage, and the sum of cut gradients, with small fakes."""

from dataclasses import replace
from itertools import permutations

import pytest
import torch

from cutlayer.accounting import GaussianRelease, NoFormalGuarantee, ReleaseLog, ReleasePlan
from cutlayer.channel import Kind
from cutlayer.config import BudgetConfig, FrozenModel
from cutlayer.errors import BudgetExceeded, CheckpointError, ConfigError, NotApplicable, NotApplied
from cutlayer.problem.task import Task
from cutlayer.protections.contract.base import Asset, Context, Protection, Side
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.coverage import HOOK_OF
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.views import ActiveView, Mode, PassiveView
from tests.protections.setup import protection


class Nothing(FrozenModel):
    pass


class Fake(Protection[Nothing]):
    config = Nothing
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = "none"
    rank = 20
    no_guarantee = "a fake"
    counters = ("count",)

    def __init__(self):
        super().__init__(Nothing())


class Clip(Fake):
    name = "clip"
    rank = 10

    def gradient_out(self, g, party, view):
        self.count(count=1)
        return g.clamp(-1, 1)


class Add(Fake):
    name = "add"

    def gradient_out(self, g, party, view):
        return g + 10


class Pull(Fake):
    name = "pull"
    excludes = frozenset({"push"})

    def cut_gradient(self, view):
        return 0.3, {party: 0.1 * e for party, e in view.embeddings.items()}


class Push(Fake):
    name = "push"

    def cut_gradient(self, view):
        return 0.7, {"telco": -1e4 * view.embeddings["telco"]}


class Weigh(Fake):
    name = "weigh"

    def cut_gradient(self, view):
        return 0.9, {"shop": torch.full_like(view.embeddings["shop"], 1e-3)}


class Quiet(Fake):
    name = "quiet"

    def local_loss(self, view):
        return None


class Pay(Fake):
    name = "pay"

    def local_loss(self, view):
        return view.embedding.sum()


class Charge(Fake):
    name = "charge"

    def local_loss(self, view):
        return 2 * view.embedding.sum()


class Shrink(Fake):
    name = "shrink"

    def embedding_out(self, e, view):
        return e / 2

    def local_loss(self, view):
        return None


class BinaryOnly(Fake):
    name = "binary_only"
    tasks = frozenset({"binary"})


def active_view():
    generator = torch.Generator().manual_seed(0)
    embeddings = {party: torch.randn(5, 3, generator=generator) for party in ("telco", "shop")}
    gradients = {party: torch.randn(5, 3, generator=generator) for party in embeddings}
    return ActiveView(Mode.TRAIN, 0, 0, torch.arange(5), torch.zeros(5), embeddings, gradients)


def passive_view(embedding=None):
    return PassiveView(Mode.TRAIN, 0, 0, torch.arange(5), lambda rows: torch.zeros(len(rows), 3), embedding)


def context(kind="binary"):
    task = None if kind is None else Task(kind, ())
    return Context("bank", ("telco",), {"telco": 3}, task, None, torch.arange(5), bytes(32), Noise(bytes(32)))


HOOKED = ("labels", "embeddings_in", "cut_gradient", "local_loss", "update")
SENT = dict.fromkeys((*HOOKED, *(kind.value for kind in HOOK_OF)), 0) | dict.fromkeys(("local_loss", "gradient"), 1)


def send(chain, gradient, party="telco"):
    """Have the chain protect a gradient, and send what it returned."""
    sent = chain.gradient_out(gradient, party, active_view())
    chain.sending(Kind.GRADIENT, party, sent)
    return sent


@pytest.mark.parametrize("order", list(permutations([Clip, Add])))
def test_rank_decides_the_order_and_not_the_file(order):
    chain = Chain("bank", [protection() for protection in order])
    sent = chain.gradient_out(torch.full((2, 3), 5.0), "telco", active_view())
    assert [protection.name for protection in chain.protections] == ["clip", "add"]
    assert sent.tolist() == [[11.0] * 3] * 2


def test_a_pair_that_cannot_be_combined_is_refused():
    with pytest.raises(ConfigError, match="expected bank: pull without push, got both; keep one of them"):
        Chain("bank", [Push(), Pull()])


def test_the_same_protection_twice_is_refused():
    with pytest.raises(ConfigError, match="expected bank: clip once, got it twice"):
        Chain("bank", [Clip(), Clip()])


def test_a_task_it_is_not_defined_for_is_refused():
    with pytest.raises(NotApplicable, match="expected a task of kind binary for binary_only, got regression"):
        Chain("bank", [BinaryOnly()]).setup(context("regression"))
    Chain("bank", [BinaryOnly()]).setup(context("binary"))


@pytest.mark.parametrize("order", list(permutations([Push, Weigh])))
def test_cut_gradients_add_up_whatever_the_order(order):
    view = active_view()
    summed = Chain("bank", [protection() for protection in order]).cut_gradients(view)
    weight = 0.7 * 0.9
    expected = weight * view.task_gradients["telco"] - 1e4 * view.embeddings["telco"]
    torch.testing.assert_close(summed["telco"], expected)
    torch.testing.assert_close(summed["shop"], weight * view.task_gradients["shop"] + 1e-3)
    first = Chain("bank", [Push(), Weigh()]).cut_gradients(view)
    assert all(torch.equal(summed[party], first[party]) for party in summed)


def test_a_term_for_a_party_that_receives_none_is_refused():
    view = active_view()
    alone = replace(view, task_gradients={"telco": view.task_gradients["telco"]})
    with pytest.raises(NotApplied, match="weigh of bank has a gradient for shop, which is sent none"):
        Chain("bank", [Weigh()]).cut_gradients(alone)


def test_without_terms_the_task_gradient_passes_by_reference():
    view = active_view()
    summed = Chain("bank", [Clip()]).cut_gradients(view)
    assert summed["telco"] is view.task_gradients["telco"]


def test_local_losses_add_up_and_none_is_none():
    embedding = torch.ones(5, 3, requires_grad=True)
    assert Chain("telco", [Quiet()]).local_loss(passive_view(embedding)) is None
    chain = Chain("telco", [Quiet(), Pay()])
    assert chain.local_loss(passive_view(embedding)).item() == 15
    quiet, pay = sorted(chain.proof(SENT), key=lambda evidence: evidence.protection, reverse=True)
    assert (quiet.changed, pay.changed) == (0, 1)
    assert Chain("telco", [Pay(), Quiet(), Charge()]).local_loss(passive_view(embedding)).item() == 45


def test_evidence_counts_what_was_covered_and_what_changed():
    chain = Chain("bank", [Clip()])
    send(chain, torch.zeros(2, 3))
    send(chain, torch.full((2, 3), 7.0))
    (evidence,) = chain.proof(SENT | {"gradient": 2})
    assert (evidence.unit, evidence.covered, evidence.sent, evidence.changed) == ("gradients", 2, 2, 1)
    assert evidence.metrics == {"count": 2}
    assert evidence.kinds == {"gradient": 2}


def released(mode, chain):
    """Have the chain release five rows."""
    view = replace(passive_view(), mode=mode)
    return chain.embedding_out(torch.ones(5, 3), view)


def test_embeddings_are_counted_by_what_they_are_released_for():
    """A protection that also acts at a hook which sends nothing counts its embeddings alone."""
    chain = Chain("telco", [Shrink()])
    for mode, kind in ((Mode.TRAIN, Kind.EMBEDDING), (Mode.TRAIN, Kind.EMBEDDING), (Mode.EVALUATE, Kind.EVALUATION)):
        chain.sending(kind, "bank", released(mode, chain))
    chain.local_loss(passive_view())
    chain.local_loss(passive_view())
    (evidence,) = chain.proof(SENT | {"embedding": 2, "evaluation": 1, "local_loss": 2})
    assert (evidence.unit, evidence.covered, evidence.sent, evidence.changed) == ("embeddings", 3, 3, 3)
    assert evidence.kinds == {"embedding": 2, "evaluation": 1}
    with pytest.raises(NotApplied, match=r"shrink of telco covered 3 of 4 at embedding_out"):
        chain.proof(SENT | {"embedding": 3, "evaluation": 1, "local_loss": 2})
    with pytest.raises(NotApplied, match=r"shrink of telco covered 2 of 3 at local_loss"):
        chain.proof(SENT | {"embedding": 2, "evaluation": 1, "local_loss": 3})


@pytest.mark.parametrize(
    "sent",
    [
        lambda e: torch.ones(5, 3),
        lambda e: e.reshape(3, 5),
        lambda e: e.double(),
        lambda e: e.flip(0) + 0.0 * e.cumsum(0),
        lambda e: e.index_fill(0, torch.tensor([4]), 0.25),
    ],
    ids=["bare", "another shape", "another type", "another content", "one row changed"],
)
def test_bytes_that_the_chain_did_not_return_are_not_sent(sent):
    chain = Chain("telco", [Shrink()])
    made = chain.embedding_out(torch.rand(5, 3, generator=torch.Generator().manual_seed(1)), passive_view())
    wanted = r"telco: the embedding for bank is not what its protections returned \(shrink\); it was not sent"
    with pytest.raises(NotApplied, match=wanted):
        chain.sending(Kind.EMBEDDING, "bank", sent(made))


def test_what_the_chain_returned_is_sent_once():
    chain = Chain("bank", [Clip()])
    gradient = send(chain, torch.full((2, 3), 7.0))
    with pytest.raises(NotApplied, match="the gradient for telco is not what its protections returned"):
        chain.sending(Kind.GRADIENT, "telco", gradient)
    other = chain.gradient_out(torch.full((2, 3), 7.0), "telco", active_view())
    with pytest.raises(NotApplied, match="the gradient for shop is not what its protections returned"):
        chain.sending(Kind.GRADIENT, "shop", other)


def test_a_message_changed_in_place_after_the_chain_is_not_sent():
    chain = Chain("bank", [Clip()])
    gradient = chain.gradient_out(torch.full((2, 3), 7.0), "telco", active_view())
    gradient[1, 2] = 0.5
    with pytest.raises(NotApplied, match="the gradient for telco"):
        chain.sending(Kind.GRADIENT, "telco", gradient)


def test_a_gradient_without_the_terms_of_the_chain_is_refused():
    view = active_view()
    chain = Chain("bank", [Push()])
    chain.cut_gradients(view)
    with pytest.raises(NotApplied, match="bank: the gradient for telco lacks the terms of push"):
        chain.gradient_out(view.task_gradients["telco"], "telco", view)
    summed = chain.gradient_out(chain.cut_gradients(view)["telco"], "telco", view)
    with pytest.raises(NotApplied, match=r"the gradient for telco is not what its protections returned \(push\)"):
        chain.sending(Kind.GRADIENT, "telco", view.task_gradients["telco"])
    chain.gradient_out(chain.cut_gradients(view)["telco"], "telco", view)
    chain.sending(Kind.GRADIENT, "telco", summed)


def test_a_chain_without_protections_lets_everything_pass():
    Chain("bank", []).sending(Kind.GRADIENT, "telco", torch.ones(2, 3))
    Chain("bank", [Clip()]).sending(Kind.EMBEDDING, "telco", torch.ones(2, 3))
    Chain("bank", [Clip()]).sending(Kind.ORDER, "telco", torch.ones(2, 3))


def test_a_single_release_may_be_sent_again_and_after_a_resume():
    first, resumed = Chain("telco", [Shrink()]), Chain("telco", [Shrink()])
    once = replace(context(None), party="telco", plan=ReleasePlan(training=1, once=True))
    first.setup(once)
    resumed.setup(once)
    sent = released(Mode.TRAIN, first)
    resumed.load_state_dict(first.state_dict())
    for chain in (first, resumed):
        chain.sending(Kind.RELEASE, "bank", sent)
        chain.sending(Kind.RELEASE, "bank", sent.clone())
        with pytest.raises(NotApplied, match="the release for bank"):
            chain.sending(Kind.RELEASE, "bank", sent + 1)
        (evidence,) = chain.proof(SENT | {"release": 1, "local_loss": 0})
        assert evidence.kinds == {"release": 1}


class Spend(Fake):
    name = "spend"
    begun = ended = 0

    def embedding_out(self, e, view):
        return e + 1

    def gradient_out(self, g, party, view):
        return g + 1

    def event(self, plan):
        return GaussianRelease(2.0, plan)

    def begin(self):
        self.begun += 1

    def end(self):
        self.ended += 1


@pytest.mark.parametrize("hook", ["embedding_out", "gradient_out"])
def test_what_is_released_is_counted_up_to_the_plan_and_then_refused(hook):
    chain = Chain("bank", [Spend()])
    chain.setup(replace(context(), plan=ReleasePlan(training=2)))

    def release(epoch):
        if hook == "gradient_out":
            return chain.gradient_out(torch.full((5, 3), epoch), "telco", replace(active_view(), epoch=epoch))
        return chain.embedding_out(torch.full((5, 3), epoch), replace(passive_view(), epoch=epoch))

    release(0.0)
    release(0.0)  # the same content, as after a resume
    (evidence,) = chain.proof(dict.fromkeys(SENT, 0))
    assert evidence.metrics["releases"] == 1
    release(1.0)
    with pytest.raises(BudgetExceeded, match="bank: release 3 of a row"):
        release(2.0)
    chain.allow_repeats(1)
    release(2.0)


def test_receivers_have_accounts_and_messages_of_their_own():
    """The same gradients for both: what one was sent is no release to the other, and covers no message to it."""
    chain = Chain("bank", [Spend()])
    both = replace(context(), peers=("telco", "shop"), widths={"telco": 3, "shop": 3}, plan=ReleasePlan(training=1))
    chain.setup(both)
    view, gradient = active_view(), torch.ones(5, 3)
    sent = {party: chain.gradient_out(gradient, party, view) for party in both.peers}
    for party in reversed(both.peers):
        chain.sending(Kind.GRADIENT, party, sent[party])
    for party in both.peers:
        with pytest.raises(BudgetExceeded, match="release 2 of a row"):
            chain.gradient_out(gradient, party, replace(view, epoch=1))
    log = chain._account._log
    assert {(occasion.receiver, occasion.kind) for occasion in log.tally.highest} == {
        ("telco", "gradient"),
        ("shop", "gradient"),
    }
    (evidence,) = chain.proof(SENT | {"gradient": 2, "local_loss": 0})
    assert evidence.metrics["releases"] == 1


def test_terms_for_one_party_are_none_for_another():
    chain, view = Chain("bank", [Push()]), active_view()
    summed = chain.cut_gradients(view)
    with pytest.raises(NotApplied, match="bank: the gradient for shop lacks the terms of push"):
        chain.gradient_out(summed["telco"], "shop", view)


def test_every_protection_begins_ends_and_is_tested_for_rows(monkeypatch):
    class WithRows(Spend):
        name = "with_rows"
        needs_row_independence = True

    tested = []
    monkeypatch.setattr(
        "cutlayer.models.row_independence.check_row_independence", lambda *given, **_: tested.append(given[2])
    )
    spends = [Spend(), WithRows()]
    chain = Chain("telco", spends)
    chain.setup(replace(context(), plan=ReleasePlan(training=2)))
    chain.check_bottom(None, None)
    chain.close_account()
    assert [(spend.begun, spend.ended) for spend in spends] == [(1, 1), (1, 1)]
    assert tested == ["with_rows of telco"]


def test_the_transitions_of_label_protections_follow_one_another():
    """From the true labels to those that the last of them returns."""

    def drawing(name, rank, transition):
        def labels(self, y, ids):
            return y

        return type(name, (Fake,), {"name": name, "rank": rank, "transition": transition, "labels": labels})()

    first, second = torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([[0.8, 0.2], [0.0, 1.0]])
    chain = Chain("bank", [drawing("late", 12, second), drawing("none", 11, None), drawing("early", 10, first)])
    torch.testing.assert_close(chain.transition, first @ second)


def test_a_protection_begins_once_the_account_has_room_and_ends_with_it():
    spend = Spend()
    chain = Chain("bank", [spend], BudgetConfig(epsilon=1e-3, delta=1e-5))
    with pytest.raises(BudgetExceeded):
        chain.setup(replace(context(), plan=ReleasePlan(training=2)))
    assert spend.begun == 0
    chain = Chain("bank", [spend])
    chain.setup(replace(context(), plan=ReleasePlan(training=2)))
    assert (spend.begun, spend.ended) == (1, 0)
    chain.close_account()
    assert (spend.begun, spend.ended) == (1, 1)


@pytest.mark.parametrize("protection", [Clip, Push, Quiet])
def test_a_message_that_went_round_it_stops_the_run(protection):
    chain = Chain("bank", [protection()])
    hook = {"clip": "gradient_out", "push": "cut_gradient", "quiet": "local_loss"}[protection.name]
    with pytest.raises(NotApplied, match=rf"{protection.name} of bank covered 0 of 3 at {hook}"):
        chain.proof(SENT | {hook.removesuffix("_out"): 3})


def test_counts_survive_a_resume():
    chain = Chain("bank", [Clip(), Add()])
    send(chain, torch.full((2, 3), 7.0))
    resumed = Chain("bank", [Clip(), Add()])
    resumed.load_state_dict(chain.state_dict())
    assert resumed.proof(SENT) == chain.proof(SENT)
    assert resumed.state_dict() == chain.state_dict()
    with pytest.raises(NotApplied):
        resumed.proof(SENT | {"gradient": 2})


class Counting(Fake):
    name = "counting"
    counters = ("rows",)
    means = (("mean_norm", "norms", "batches"),)


def test_a_resume_with_an_older_release_log_is_refused(tmp_path):
    def opened(name):
        chain = Chain("bank", [Spend()])
        log = ReleaseLog(tmp_path / name / "log.jsonl", {"party": "bank", "folder": name})
        chain.setup(replace(context(), plan=ReleasePlan(training=2)), log)
        return chain

    chain = opened("one")
    chain.gradient_out(torch.ones(5, 3), "telco", active_view())
    state = chain.state_dict()
    opened("one").load_state_dict(state)
    with pytest.raises(CheckpointError, match="an older copy is in its place"):
        opened("other").load_state_dict(state)


def test_counters_are_metrics_and_what_means_are_taken_of_is_not():
    counting = Counting()
    assert counting.metrics() == {"rows": 0, "mean_norm": 0}
    counting.count(rows=2, norms=3.0, batches=1)
    counting.count(rows=2, norms=4.0, batches=1)
    assert counting.metrics() == {"rows": 4, "mean_norm": 3.5}
    with pytest.raises(KeyError, match="columns"):
        counting.count(columns=1)


def test_a_resume_needs_every_counter():
    chain = Chain("bank", [Counting()])
    state = chain.state_dict()
    del state["protections"]["counting"]["counts"]["norms"]
    with pytest.raises(KeyError, match="norms"):
        chain.load_state_dict(state)


def test_a_protection_states_its_guarantee_or_why_there_is_none():
    with pytest.raises(TypeError, match="expected Silent to override `event` or to state `no_guarantee`"):
        type("Silent", (Protection,), {"name": "silent"})
    assert Counting().event(ReleasePlan(training=1)) == NoFormalGuarantee("a fake")


def test_noise_repeats_only_for_the_same_use_and_content():
    noise, content = Noise(bytes(range(32))), torch.arange(6.0).reshape(2, 3)

    def drawn(hook="marvell", peer="telco", step=3, content=content, shape=(1000,)):
        return noise.normal(shape, hook=hook, peer=peer, step=step, content=content)

    base = drawn()
    assert torch.equal(base, drawn(content=content.clone()))
    others = [
        drawn(hook="max_norm"),
        drawn(peer="shop"),
        drawn(step=4),
        drawn(content=content + 1),
        drawn(content=content.reshape(3, 2)),
        drawn(content=content.double()),
        drawn(peer="telco|3", step=0),
        Noise(bytes(32)).normal((1000,), hook="marvell", peer="telco", step=3, content=content),
    ]
    together = torch.corrcoef(torch.stack([base, *others])) - torch.eye(len(others) + 1)
    assert float(together.abs().max()) < 0.2
    assert drawn(shape=(2, 5)).shape == (2, 5)


def test_hooks_that_are_not_overridden_change_nothing():
    untouched = torch.ones(2, 3)
    one = protection("max_norm", {})
    assert one.cut_gradient(None) == (1.0, {})
    assert one.embedding_out(untouched, None) is untouched
    assert one.local_loss(None) is None
