"""The checks of attacks on the whole run. Each takes the class under test and its line of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from torch import Tensor

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.history import HistoryAttack
from cutlayer.audit.known_labels import leaks_by_variant, strongest_leak
from cutlayer.errors import NotApplicable
from cutlayer.problem.task import Task

from .history_world import EPOCHS, ROWS, WIDTH, World, crowded, regression, sparsified, undefended
from .suite import last_bit_moved, reads_more, states_its_paper
from .table import HistoryCase

AttackClass = type[HistoryAttack]


def states_its_terms(attack: AttackClass, case: HistoryCase) -> None:
    """Name, paper, targets, and a line of the table for every target."""
    states_its_paper(attack)
    assert set(case.succeeds) == set(attack.reads), "expected a limit in the table for each message that it `reads`"


def succeeds_undefended(attack: AttackClass, case: HistoryCase) -> None:
    """It reads the labels off an undefended run, whichever class is the rare one."""
    for world in _worlds(attack, case):
        for target in case.succeeds:
            limit = case.limit(world.view.task.kind, target)
            reads_more(attack, target, strongest_leak(_undefended_scores(attack, world, target), world.truth), limit)


def survives_an_invertible_map(attack: AttackClass, case: HistoryCase) -> None:
    """A defence that only rotates and rescales the messages, anew in every epoch, hides nothing from it."""
    for world in _world_of_each_task(attack, case):
        turned = world.changed(_turned)
        for target in attack.reads:
            limit = case.limit(world.view.task.kind, target, mapped=True)
            assert strongest_leak(_scores(attack, turned, target), world.truth) > limit


def is_near_chance_on_random_labels(attack: AttackClass, case: HistoryCase) -> None:
    """Labels that have nothing to do with the messages are not found in them.

    The AUC of a score has a standard deviation of 0.02 with so many rows of the rarest class. The mean of five folded
    ones is then about 0.516, and above 0.55 with a probability below 1e-9.
    """
    for world in _worlds(attack, case):
        draws = [torch.randperm(ROWS, generator=torch.Generator().manual_seed(90 + draw)) for draw in range(5)]
        for target in attack.reads:
            scores = _undefended_scores(attack, world, target)
            leaks = [leaks_by_variant(scores, world.truth[order]) for order in draws]
            for variant in leaks[0]:
                assert sum(leak[variant].value for leak in leaks) / len(leaks) < 0.55


def learns_nothing_from_random_labels(attack: AttackClass, case: HistoryCase) -> None:
    """Fitted on labels that have nothing to do with the messages, it does not find the labels of other rows.

    As above; the concordance of 1,160 values has a standard deviation of 0.0098, so the mean of two folded ones is
    about 0.508, with an error of 0.004.
    """
    if not case.labels_known:
        return
    for world in _world_of_each_task(attack, case):
        orders = [torch.randperm(ROWS, generator=torch.Generator().manual_seed(80 + draw)) for draw in range(2)]
        limit = 0.52 if world.view.task.kind == "regression" else 0.55
        for target in attack.reads:
            random = [replace(world, truth=world.truth[order]) for order in orders]
            leaks = [leaks_by_variant(_scores(attack, other, target), other.truth) for other in random]
            for variant in leaks[0]:
                assert sum(leak[variant].value for leak in leaks) / len(leaks) < limit


def returns_well_formed_scores(attack: AttackClass, case: HistoryCase) -> None:
    """Finite float64 scores of each row at most once, known rows left out, the same when asked again."""
    for world in _world_of_each_task(attack, case):
        for target in attack.reads:
            scores, again = _undefended_scores(attack, world, target), _scores(attack, world, target)
            several = () if world.view.task.kind != "multiclass" else (len(world.view.task.classes),)
            assert scores.values.dtype == torch.float64
            assert bool(scores.values.isfinite().all())
            assert scores.values.shape == (len(scores.rows), *several)
            assert len(scores.rows) == len(scores.rows.unique()) >= ROWS - 40
            assert torch.equal(scores.values, again.values)
            if case.labels_known:
                assert not world.knowledge().known.keys() & set(scores.rows.tolist())


def refuses_what_it_lacks(attack: AttackClass, case: HistoryCase) -> None:
    """Missing knowledge, another task and missing messages are `NotApplicable`."""
    world = _worlds(attack, case)[0]
    if attack.needs:
        with pytest.raises(NotApplicable, match=f"{attack.name} with knowledge of"):
            attack()(world.view, Knowledge())
    for kind in {"binary", "multiclass", "regression"} - attack.tasks:
        with pytest.raises(NotApplicable, match=attack.name):
            attack()(replace(world.view, task=Task(kind, ("0", "1", "2"))), world.knowledge())
    silent = replace(world.view.epochs[0], embeddings={}, gradients={})
    nothing = replace(world.view, epochs=[silent], own_embeddings={}, parts=None, sent=None, _results={})
    for target in attack.reads:
        with pytest.raises(NotApplicable):
            attack()(replace(nothing, target=target), world.knowledge())


def bears_dead_messages(attack: AttackClass, case: HistoryCase) -> None:
    """An epoch of zeros, one of NaN, and zero rows in the others, give neither a crash nor a NaN."""

    def dying(zeros: int, nan: int) -> Callable[[Tensor, int, str], Tensor]:
        def change(matrix: Tensor, epoch: int, message: str) -> Tensor:
            if epoch == nan:
                return torch.full_like(matrix, float("nan"))
            return matrix * (epoch != zeros) * (torch.arange(ROWS) % 3 != epoch % 3)[:, None]

        return change

    worlds = _world_of_each_task(attack, case, epochs=4)  # of which two are left
    for number in range(max(len(worlds), 2)):
        world, zeros, nan = worlds[number % len(worlds)], number % 2, 1 - number % 2
        for target in attack.reads:
            scores = _scores(attack, world.changed(dying(zeros, nan)), target)
            assert bool(scores.values.isfinite().all())


def ignores_scale_and_last_bit(attack: AttackClass, case: HistoryCase) -> None:
    """Messages near 1e-20, moved by one unit in the last place, in tensors of another alignment, give the same leak.

    If they do not, either change alone says which of them it was.
    """

    for world in _world_of_each_task(attack, case):
        for target in attack.reads:
            exact = strongest_leak(_undefended_scores(attack, world, target), world.truth)
            both, tiny, moved = (
                partial(_changed_leak, attack, world, target, scale=scale, change=change)
                for scale, change in ((2.0**-70, last_bit_moved), (2.0**-70, torch.clone), (1.0, last_bit_moved))
            )
            if both() != pytest.approx(exact, abs=0.005):
                pytest.fail(f"{exact:.3f} on {target}, of tiny messages {tiny():.3f}, of other last bits {moved():.3f}")


def _changed_leak(
    attack: AttackClass, world: World, target: str, *, scale: float, change: Callable[[Tensor], Tensor]
) -> float:
    changed = world.changed(lambda matrix, epoch, message: change(matrix * scale))
    return strongest_leak(_scores(attack, changed, target), world.truth)


HISTORY_CHECKS: tuple[Callable[[AttackClass, HistoryCase], None], ...] = (
    states_its_terms,
    succeeds_undefended,
    survives_an_invertible_map,
    is_near_chance_on_random_labels,
    learns_nothing_from_random_labels,
    returns_well_formed_scores,
    refuses_what_it_lacks,
    bears_dead_messages,
    ignores_scale_and_last_bit,
)


def _worlds(attack: AttackClass, case: HistoryCase, epochs: int = EPOCHS) -> list[World]:
    plain = partial(undefended, epochs=epochs)
    world = crowded if case.crowded else plain if case.kept == 1 else partial(sparsified, kept=case.kept)
    shares = (0.1, 0.9) if case.crowded else (0.25, 0.75)
    binary = [world(share) for share in shares if "binary" in attack.tasks]
    return (
        binary
        + [plain(classes=3)] * ("multiclass" in attack.tasks)
        + [regression(epochs)] * ("regression" in attack.tasks)
    )


def _world_of_each_task(attack: AttackClass, case: HistoryCase, epochs: int = EPOCHS) -> list[World]:
    """One of `_worlds` for each kind of task: for what does not depend on which class is rare."""
    return [*{world.view.task.kind: world for world in _worlds(attack, case, epochs)}.values()]


def _scores(attack: AttackClass, world: World, target: str) -> Scores:
    return attack()(replace(world.view, target=target, _results={}), world.knowledge())


@cache
def _undefended_scores(attack: AttackClass, world: World, target: str) -> Scores:
    """The attack's scores of a world as it is, which several checks compare with."""
    return _scores(attack, world, target)


def _turned(matrix: Tensor, epoch: int, message: str) -> Tensor:
    draw = torch.Generator().manual_seed(epoch + 17 * (message == "gradient"))
    rotation = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=draw)).Q
    return 3.0 * matrix @ rotation * (1 + epoch) + (1.0 if message == "embedding" else 0.0)
