"""Scales of past batches: means by blocks, sizes of messages that do not count positives, and resumes."""

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats

from cutlayer.attacks.catalogue import MessageSize
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.history import HistoryView
from cutlayer.audit.known_labels import strongest_leak
from cutlayer.channel.row_history import FollowedEpoch
from cutlayer.errors import NotApplicable
from cutlayer.kernels.rows.row_norms import row_norms
from cutlayer.kernels.statistics.message_sizes import message_sizes
from cutlayer.problem.task import Task
from cutlayer.protections.past_batches import PastBatches
from tests.protections.setup import gradients, protection, resume, saved, view

FORMS = [
    ("iso_noise", {"ratio": 25.0}, "paper"),
    ("marvell", {"sum_kl": 0.16}, "shared"),
    ("max_norm", {}, "once"),
]
ROWS, BATCH, EPOCHS, SHARE, WIDTH = 2000, 10, 2, 0.05, 6


def at(epoch, step, rows=None, labels=None):
    rows = torch.arange(8) if rows is None else rows
    return replace(view(labels, n=len(rows)), epoch=epoch, step=step, rows=rows)


def test_means_are_those_of_the_block_before():
    """Against lists: blocks end before the steps 1, 2, 4, 8, ... of the first epoch, and before each further epoch."""
    steps, per_epoch = 60, 20
    past, blocks = PastBatches(), [[]]
    draw = torch.Generator().manual_seed(0)
    ends = {1, 2, 4, 8, 16, 20, 40}
    for step in range(steps):
        if step in ends:
            blocks.append([])
        seen = past.means("telco", at(step // per_epoch, step))
        earlier = [(x, w) for block in blocks[:-1][-1:] for x, w in block]
        if not earlier:
            assert seen is None
        else:
            total = sum(w[:, None] * x for x, w in earlier)
            torch.testing.assert_close(seen, total / sum(w for _, w in earlier)[:, None])
        x, w = torch.rand(2, 3, generator=draw).double(), 1 + torch.rand(2, generator=draw).double()
        past.add("telco", at(step // per_epoch, step), x, w)
        blocks[-1].append((x, w))
    assert past.means("shop", at(2, 59)) is None


def test_a_statistic_without_weight_keeps_its_mean_and_a_party_may_begin_late():
    past = PastBatches()
    past.add("telco", at(3, 70), torch.tensor([2.0, 5.0]).double(), torch.tensor([1.0, 3.0]).double())
    assert past.means("telco", at(3, 70)) is None
    past.add("telco", at(3, 71), torch.tensor([4.0, 9.0]).double(), torch.tensor([1.0, 0.0]).double())
    assert past.means("telco", at(3, 71)).tolist() == [2.0, 5.0]
    assert past.means("telco", at(3, 72)).tolist() == [4.0, 5.0]
    assert past.means("telco", at(4, 90)).tolist() == [4.0, 5.0], "a block without batches changes nothing"


def sent_over_epochs(name, options):
    """What a party is sent of rare positives, whose gradients are longer, and the labels."""
    draw = torch.Generator().manual_seed(3)
    labels = (torch.rand(ROWS, generator=draw) < SHARE).long()
    w = torch.tensor([1.0, -0.6, 0.3, 0.1, 0.0, 0.0]) + 0.3 * torch.randn(ROWS, WIDTH, generator=draw)
    g = (SHARE - labels)[:, None] * w / BATCH
    built = protection(name, options, epochs=EPOCHS, batch_size=BATCH, training=torch.arange(ROWS))
    made = []
    for epoch in range(EPOCHS):
        order = torch.randperm(ROWS, generator=draw)
        steps, sent, sizes = torch.zeros(ROWS, dtype=torch.int64), torch.zeros(ROWS, WIDTH), []
        for number, rows in enumerate(order.split(BATCH)):
            step = at(epoch, epoch * (ROWS // BATCH) + number, rows, labels[rows])
            sent[rows] = built.gradient_out(g[rows], "telco", step)
            steps[rows] = number
            sizes.append(message_sizes(sent[rows]))
        sizes_of_all = {"telco": torch.tensor(sizes, dtype=torch.float64)}
        made.append(FollowedEpoch(epoch, torch.arange(ROWS), steps, {}, {"telco": sent}, sizes_of_all))
    return HistoryView("telco", Task("binary", ("no", "yes")), made), labels.bool()


def size_leak(name, options):
    sent, truth = sent_over_epochs(name, options)
    try:
        return strongest_leak(MessageSize()(sent, Knowledge(SHARE)), truth)
    except NotApplicable:  # all messages have the same size
        return 0.5


@pytest.mark.parametrize(("name", "options", "own"), FORMS)
def test_sizes_of_messages_count_the_positives_of_a_batch_only_where_its_own_numbers_scale_them(name, options, own):
    assert size_leak(name, {**options, "form": own}) > 0.61
    assert size_leak(name, options) < 0.58  # of 100 positives: nearly three standard errors above chance


def test_a_mean_that_takes_in_every_batch_at_once_is_read_one_message_later(monkeypatch):
    """The number of a block that changes with each step, which is what a running mean without blocks comes to."""
    monkeypatch.setattr("cutlayer.protections.past_batches.block_number", lambda epoch, step: step)
    assert size_leak("iso_noise", {"ratio": 25.0}) > 0.75


@pytest.mark.parametrize(("name", "options", "own"), FORMS)
def test_what_is_added_to_a_batch_is_of_the_scale_of_others_whatever_its_own(name, options, own):
    """The root mean square length of a row: of what is sent, or of the noise where that is not far longer."""
    g, labels = gradients(400, 5)
    rows = torch.arange(400)

    def length(form, scale):
        built = protection(name, {**options, "form": form}, training=rows)
        for number in range(4):
            assert bool(built.gradient_out(g, "telco", at(0, number, rows, labels)).any()) == (
                number > 0 or form == own
            )
        sent = built.gradient_out(scale * g, "telco", at(0, 6, rows, labels))
        return float(row_norms(sent - scale * g if name == "marvell" else sent).square().mean().sqrt())

    # Noise on one axis: the length over 400 rows has a standard error of 3.5 %. Draws depend on the last bits of g.
    for scale in (0.1, 10.0):
        assert length("past", scale) == pytest.approx(length("past", 1.0), rel=0.3)
        assert length(own, scale) == pytest.approx(scale * length(own, 1.0), rel=0.3)


def test_isotropic_noise_of_past_batches_has_their_scale_and_no_other():
    g, _ = gradients(2000, 50)
    noise = protection("iso_noise", {"ratio": 2.0})
    for number, scale in enumerate((1.0, 2.0, 4.0)):
        noise.gradient_out(scale * g, "telco", at(0, number))
    longest = float(row_norms(g).max())
    sent = noise.gradient_out(0.5 * g, "telco", at(1, 3))
    drawn = (sent - 0.5 * g).double().numpy().ravel()
    law = stats.norm(scale=2.0 * 4.0 * longest / math.sqrt(50))  # the block before is the step at scale 4
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(wrong * drawn, law.cdf).pvalue < 1e-12
    assert noise.metrics()["batches_withheld"] == 1


def test_rows_that_are_longer_than_those_of_past_batches_are_shortened():
    noise = protection("iso_noise", {"ratio": 1e-6})
    g = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    noise.gradient_out(g, "telco", at(0, 0))
    sent = noise.gradient_out(2 * g, "telco", at(0, 1))
    torch.testing.assert_close(sent, torch.tensor([[3.0, 4.0], [0.0, 2.0]]), rtol=1e-4, atol=1e-4)
    assert noise.metrics()["rows_shortened"] == 1


def test_marvell_sends_a_batch_of_zeros_as_it_is_and_learns_nothing_from_it():
    g, labels = gradients(200, 6)
    rows = torch.arange(200)
    plain, dead = (protection("marvell", {"sum_kl": 0.16}, training=rows) for _ in range(2))
    assert not dead.gradient_out(torch.zeros(200, 6), "telco", at(0, 0, rows, labels)).any()
    metrics = dead.metrics()
    assert (metrics["batches_without_difference"], metrics["one_class_batches_withheld"]) == (1, 0)
    for step in (1, 2):
        sent = [built.gradient_out(g, "telco", at(0, step, rows, labels)) for built in (plain, dead)]
        assert torch.equal(*sent)


def test_max_norm_gives_rows_of_zeros_a_mixture_of_the_others_directions():
    g = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    g[2] = 0
    g[:, 2] = 0
    built = protection("max_norm", {})
    for step in (0, 1):
        sent = built.gradient_out(g, "telco", at(0, step, torch.arange(6)))
    lengths = sent.double().norm(dim=1)
    assert lengths.tolist() == pytest.approx([float(lengths[0])] * 6, rel=1e-5)
    assert not sent[:, 2].any(), "no direction that no row has"
    assert built.metrics()["zero_norm_rows"] == 2


def test_max_norm_says_from_two_epochs_on_that_signs_change():
    assert protection("max_norm", {}).notes(1) == []
    assert protection("max_norm", {}).notes(2)[0].startswith("the sign of a row changes between epochs")


@pytest.mark.parametrize(("name", "options", "own"), FORMS)
def test_a_resumed_run_continues_with_the_past_batches(name, options, own):
    g, labels = gradients(100, 6)
    built, resumed = (protection(name, options) for _ in range(2))
    for number in range(7):
        built.gradient_out((1 + number) * g, "telco", at(0, number, torch.arange(100), labels))
    resume(resumed, saved(built))
    for number in (7, 8, 9):
        step = at(int(number == 9), number, torch.arange(100), labels)
        assert torch.equal(resumed.gradient_out(g, "telco", step), built.gradient_out(g, "telco", step))
    assert resumed.metrics() == built.metrics()


@pytest.mark.parametrize(
    ("name", "options"), [(name, given) for name, own, form in FORMS for given in (own, own | {"form": form})]
)
def test_what_one_party_is_sent_depends_on_nothing_that_another_was_sent(name, options):
    """Whose gradients are far larger, and come first; also after a resume."""
    g, labels = gradients(100, 6)
    alone, both = (protection(name, options) for _ in range(2))
    for number in range(12):
        of_one_class = number in (4, 9)
        step = at(number // 8, number, torch.arange(100), torch.ones_like(labels) if of_one_class else labels)
        both.gradient_out(1e3 * g.roll(1, 0) + 7.0, "shop", step)
        if number:
            sent = alone.gradient_out((1 + number) * g, "telco", step)
            assert torch.equal(both.gradient_out((1 + number) * g, "telco", step), sent), number
        if number in (3, 8):
            before, both = saved(both), protection(name, options)
            resume(both, before)
