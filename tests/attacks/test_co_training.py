"""One stretch of a row for all epochs hides its label from each message, and neither from co-training nor from axes."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from cutlayer.attacks.catalogue import (
    AlignedMatch,
    Bilinear,
    CoTraining,
    FeaturePrior,
    JointSpectral,
    Mixture,
    Similarity,
)
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.co_training import Trees, predict_by_trees
from cutlayer.audit.known_labels import leaks_by_variant, strongest_leak
from cutlayer.errors import NotApplicable
from cutlayer.kernels.noise.max_norm import max_norm
from cutlayer.kernels.rows.row_norms import row_norms

from ..conformance.history_world import ROWS, undefended


@pytest.fixture(autouse=True)
def _fewer_trees(monkeypatch):
    monkeypatch.setattr(predict_by_trees, "__defaults__", (Trees(folds=2, trees=30),))


def aligned(world, *, once=True):
    """The world under max norm alignment, with one draw of each row for the run, or with one for every epoch."""

    def change(matrix, epoch, message):
        if message == "embedding":
            return matrix
        normal = torch.randn(ROWS, generator=torch.Generator().manual_seed(3 if once else 30 + epoch))
        return max_norm(matrix, row_norms(matrix), normal, matrix.new_zeros(0, matrix.shape[1]))

    return world.changed(change)


def leak(world, attack, view=None):
    return strongest_leak(attack()(view or world.view, world.knowledge()), world.truth)


@cache
def co_training_leak(share):
    """Of the world under alignment, as it is: two tests compare with it."""
    return leak(aligned(undefended(share)), CoTraining)


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_it_reads_what_no_other_attack_without_labels_does(share):
    world = aligned(undefended(share))
    assert co_training_leak(share) > 0.9
    dear = (AlignedMatch,) if share == 0.25 else ()
    for attack in (JointSpectral, Mixture, Bilinear, FeaturePrior, *dear):
        assert leak(world, attack) < 0.8


def test_columns_that_say_nothing_teach_nothing():
    """The columns of other rows: what is left is the coordinate of the first epoch, as the trees smooth it."""
    world = aligned(undefended(0.25))
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(4)).numpy()
    shuffled = replace(world.view, columns=world.view.columns[order], _results={})
    assert leak(world, CoTraining, shuffled) < co_training_leak(0.25) - 0.15


def test_the_embedding_stands_for_columns_that_are_not_at_hand():
    world = aligned(undefended(0.25))
    assert leak(world, CoTraining, replace(world.view, columns=None, _results={})) > 0.9
    bare = [replace(epoch, embeddings={}) for epoch in world.view.epochs]
    with pytest.raises(NotApplicable):
        CoTraining()(replace(world.view, columns=None, epochs=bare, own_embeddings={}, _results={}), world.knowledge())


@pytest.mark.parametrize("once", [True, False])
def test_rows_of_a_class_stay_on_its_axis(once):
    """Max norm alignment turns rows around: the cosine with a known row says nothing, its square names the class."""
    world = aligned(undefended(classes=3), once=once)
    leaks = leaks_by_variant(Similarity()(world.view, world.knowledge()), world.truth)
    assert leaks["axis"].value > 0.97
    assert max(leaks[name].value for name in ("", "clusters", "distance")) < 0.8


def test_two_classes_share_an_axis():
    world = undefended()
    assert set(Similarity()(world.view, world.knowledge()).also) == {"distance", "clusters"}


def test_a_class_without_a_known_row_scores_lowest():
    world = undefended(classes=3)
    known = {row: int(world.truth[row]) for row in range(40) if int(world.truth[row]) != 2}
    scores = Similarity()(world.view, Knowledge(None, known, (0.3, 0.3, 0.4)))
    assert bool((scores.also["axis"][:, 2] < scores.also["axis"][:, :2].amin(dim=1)).all())
