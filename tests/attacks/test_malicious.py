"""What malicious parties send: the honest message, but where the attack replaces it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cutlayer.attacks.knowledge import Auxiliary
from cutlayer.attacks.malicious.backdoor import Backdoor, trigger_of
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.attacks.malicious.chosen_labels import ChosenLabels
from cutlayer.attacks.malicious.hijack import Hijack, Inverse
from cutlayer.attacks.malicious.probing import Probing
from cutlayer.attacks.malicious.replay import Replay
from cutlayer.attacks.malicious.scaling import Scaling
from cutlayer.attacks.malicious.swap import Swap
from cutlayer.data.batches import Schedule
from cutlayer.data.encoded import ColumnSpec

ROWS, WIDTH = 60, 3
COLUMNS = ColumnSpec((), 4, (), ("a", "b", "c", "d"))
KNOWN = torch.arange(0, ROWS, 3)


def numbers() -> torch.Tensor:
    return torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(1))


def hijack(strength: float = 1.0) -> Hijack:
    known = Auxiliary(COLUMNS, KNOWN, torch.zeros(len(KNOWN), 0, dtype=torch.int32), numbers()[KNOWN])
    made = Hijack(lambda _: {"telco": known}, strength)
    made.begin(Schedule(torch.arange(ROWS).numpy(), 20, 0))
    return made


def test_a_party_that_changes_nothing_sends_what_it_would_send() -> None:
    honest, embedding = {"telco": torch.ones(2, WIDTH)}, torch.randn(2, WIDTH)
    assert Tampering().gradients(torch.arange(2), {"telco": embedding}, honest) is honest
    assert Tampering().embedding(1, torch.arange(2), embedding) is embedding


def test_hijack_replaces_the_gradients_of_known_rows_alone() -> None:
    torch.manual_seed(0)
    rows = torch.arange(1, 31)
    embeddings, honest = {"telco": torch.randn(30, WIDTH)}, {"telco": torch.randn(30, WIDTH)}
    sent = hijack(0.5).gradients(rows, embeddings, honest)["telco"]
    known = torch.isin(rows, KNOWN)
    assert torch.equal(sent[~known], honest["telco"][~known])
    assert not bool((sent[known] == honest["telco"][known]).any())
    # The size that the attacker chose, over that of the whole batch.
    torch.testing.assert_close(sent[known].norm(), 0.5 * honest["telco"].norm())


def test_hijack_leaves_what_it_cannot_use_as_it_is() -> None:
    rows = torch.tensor([1, 2, 4])  # none of them is known
    honest = {"telco": torch.randn(3, WIDTH), "shop": torch.randn(3, WIDTH)}
    sent = hijack().gradients(rows, {name: torch.randn(3, WIDTH) for name in honest}, honest)
    assert all(torch.equal(sent[name], honest[name]) for name in honest)
    zeros = {"telco": torch.zeros(2, WIDTH)}
    assert not bool(hijack().gradients(KNOWN[:2], {"telco": torch.randn(2, WIDTH)}, zeros)["telco"].any())


def test_the_gradients_of_a_hijack_descend_the_error_of_the_inverse() -> None:
    """An encoder that follows them ends with a smaller error than one at rest, by the same training of the inverse."""
    errors = {}
    for learns in (True, False):
        torch.manual_seed(2)
        features = numbers()[KNOWN]
        known = Auxiliary(COLUMNS, KNOWN, torch.zeros(len(KNOWN), 0, dtype=torch.int32), features)
        inverse, encoder = Inverse(known, WIDTH), nn.Linear(4, WIDTH)
        with torch.no_grad():
            encoder.weight[:, 1:] = 0.0  # at first three columns of four are not in the embedding
        index = torch.arange(len(KNOWN))
        for _ in range(25):
            sent = encoder(features)
            gradient = inverse.gradient(index, sent.detach())
            if learns:
                sent.backward(gradient)
                with torch.no_grad():
                    for parameter in encoder.parameters():
                        assert parameter.grad is not None
                        parameter -= 0.5 * parameter.grad
                        parameter.grad = None
        with torch.no_grad():
            errors[learns] = float((inverse.network(encoder(features)) - features).square().mean())
    assert errors[True] < 0.5 * errors[False]


@pytest.mark.parametrize("spread", [0.0, 0.25])
def test_probing_sends_the_mean_of_the_batch_in_odd_epochs(spread: float) -> None:
    embedding = torch.randn(5, WIDTH, requires_grad=True)
    probing = Probing(spread)
    assert probing.embedding(0, torch.arange(5), embedding) is embedding
    sent = probing.embedding(1, torch.arange(5), embedding)
    mean = embedding.mean(dim=0)
    torch.testing.assert_close(sent, mean + spread * (embedding - mean))
    sent.sum().backward()  # the bottom model learns on
    assert embedding.grad is not None
    assert bool(embedding.grad.any())


def test_a_covered_hijack_keeps_that_part_of_the_honest_direction() -> None:
    torch.manual_seed(0)
    rows, honest = torch.arange(1, 31), {"telco": torch.randn(30, WIDTH)}
    attack = hijack()
    attack.cover = 0.55
    sent = attack.gradients(rows, {"telco": torch.randn(30, WIDTH)}, honest)["telco"]
    known = torch.isin(rows, KNOWN)
    cosines = nn.functional.cosine_similarity(sent[known], honest["telco"][known])
    torch.testing.assert_close(cosines, torch.full_like(cosines, 0.55**0.5))


def test_a_replay_repeats_the_first_embedding_of_each_row_and_lets_the_model_learn() -> None:
    replay, rows = Replay(), torch.tensor([4, 2])
    first = torch.randn(2, WIDTH)
    assert torch.equal(replay.embedding(0, rows, first), first)
    later = torch.randn(2, WIDTH, requires_grad=True)
    sent = replay.embedding(1, rows.flip(0), later)
    torch.testing.assert_close(sent, first.flip(0))
    (gradient,) = torch.autograd.grad(sent.sum(), later)
    assert torch.equal(gradient, torch.ones_like(later))
    assert replay.embedding(1, rows[:0], later[:0]).shape == (0, WIDTH)


def test_swapped_and_scaled_embeddings_are_those_of_odd_epochs() -> None:
    rows, embedding = torch.arange(5), torch.randn(5, WIDTH)
    for attack in (Swap(), Scaling(3.0)):
        assert attack.embedding(0, rows, embedding) is embedding
    assert torch.equal(Swap().embedding(1, rows, embedding)[1:], embedding[:-1])
    scaled = Scaling(3.0).embedding(1, rows, embedding)
    torch.testing.assert_close(scaled.var(dim=0), 9 * embedding.var(dim=0))
    torch.testing.assert_close(scaled.mean(dim=0), embedding.mean(dim=0))


def test_a_backdoor_sends_the_trigger_for_the_known_rows_alone() -> None:
    rows, embedding = torch.arange(5), torch.randn(5, WIDTH, requires_grad=True)
    backdoor = Backdoor(lambda: torch.tensor([1, 3]))
    assert backdoor.embedding(0, rows, embedding) is embedding
    sent = backdoor.embedding(1, rows, embedding)
    assert torch.equal(sent[[1, 3]], trigger_of(WIDTH).expand(2, -1))
    assert torch.equal(sent[[0, 2, 4]], embedding[[0, 2, 4]])
    noisy = Backdoor(lambda: rows, jitter=0.1).embedding(1, rows, embedding)
    assert bool((noisy - trigger_of(WIDTH)).abs().max() > 0)


def test_chosen_labels_follow_the_first_component_of_the_known_rows() -> None:
    features = torch.zeros(len(KNOWN), 4)
    features[:, 2] = torch.linspace(-1, 1, len(KNOWN))
    known = Auxiliary(COLUMNS, KNOWN, torch.zeros(len(KNOWN), 0, dtype=torch.int32), features)
    attack = ChosenLabels(lambda _: {"telco": known})
    attack.begin(Schedule(torch.arange(ROWS).numpy(), 20, 0))
    labels = torch.randint(2, (ROWS,))
    labels[1] = -1  # no training row
    chosen = attack.labels(labels)
    others = torch.ones(ROWS, dtype=torch.bool)
    others[KNOWN] = False
    assert torch.equal(chosen[others], labels[others])
    half = chosen[KNOWN][: len(KNOWN) // 2]
    assert bool((half == half[0]).all())
    assert not bool((chosen[KNOWN][len(KNOWN) // 2 :] == half[0]).any())
