"""SDAR reads no embedding of a row that it knows, and leaves out what its simulators do not share."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from cutlayer.attacks.feature.base import encoded_slices
from cutlayer.attacks.knowledge import Simulation
from cutlayer.errors import NotApplicable
from cutlayer.problem.task import Task
from cutlayer_published.attacks import sdar
from cutlayer_published.attacks.sdar import Sdar, conditions_of, round_embeddings, shrink_to_agreement
from tests.conformance.feature_world import COLUMNS, ROWS, WIDTH, Stack, World, simulated


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(sdar, "PASSES", 2)
    return simulated(informative=True)


def test_embeddings_of_known_rows_are_not_read(world: World) -> None:
    known = world.knowledge.auxiliary.indices
    embeddings = world.view.embeddings.clone()
    embeddings[known] = torch.randn(len(known), WIDTH)
    other = replace(world.view, embeddings=embeddings)
    made, again = (Sdar()(view, world.knowledge, 0) for view in (world.view, other))
    assert torch.equal(made.values, again.values)
    assert torch.equal(made.rows, world.view.rows[world.knowledge.auxiliary.unknown(len(world.view.rows))])


def test_the_top_model_is_asked_with_known_rows_and_is_left_as_it_was(world: World) -> None:
    top, asked = nn.Linear(WIDTH, 6).requires_grad_(False), []
    before = top.weight.clone()

    def logits(embeddings: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        asked.append(indices)
        return top(embeddings)

    simulation = Simulation(world.knowledge.simulation.task, lambda: Stack(13), logits)
    Sdar()(world.view, replace(world.knowledge, simulator=simulation), 0)
    assert torch.isin(torch.cat(asked), world.knowledge.auxiliary.indices).all()
    assert torch.equal(top.weight, before)


def test_it_needs_labels(world: World) -> None:
    with pytest.raises(NotApplicable, match="labels of the rows for sdar, got embeddings alone"):
        Sdar()(replace(world.view, labels=None), world.knowledge, 0)


@pytest.mark.parametrize(("kind", "classes", "columns"), [("binary", ("no", "yes"), 2), ("regression", (), 1)])
def test_labels_of_every_task_are_inputs(world: World, kind: str, classes: tuple[str, ...], columns: int) -> None:
    task = Task(kind, classes, center=1.0, scale=2.0)
    simulation = Simulation(task, lambda: Stack(13), lambda e, _: e)
    view = replace(world.view, labels=torch.tensor([0, 1] * (ROWS // 2)))
    made = conditions_of(simulation, view)
    assert made.shape == (ROWS, columns)
    assert made[:2].tolist() == ([[-0.5], [0.0]] if kind == "regression" else [[1.0, 0.0], [0.0, 1.0]])


def test_what_simulators_do_not_share_is_left_out() -> None:
    torch.manual_seed(0)
    features = torch.randn(50, 13)
    one, slices = features - features.mean(dim=0), encoded_slices(COLUMNS)
    centre = features.mean(dim=0)
    assert torch.allclose(shrink_to_agreement(torch.stack([features, features]), features, slices), features, atol=1e-6)
    assert torch.allclose(
        shrink_to_agreement(torch.stack([centre + one, centre - one]), features, slices), centre.expand(50, -1)
    )
    half = torch.stack([features, torch.roll(features, 1, dims=0)])
    assert shrink_to_agreement(half, features, slices).var(dim=0).sum() < 0.2 * features.var(dim=0).sum()


def test_rounding_hides_the_last_bit_and_little_else() -> None:
    torch.manual_seed(0)
    x = torch.randn(500, 4) * torch.tensor([1e-6, 1.0, 30.0, 0.0]) + torch.tensor([0.0, 0.0, 0.0, 7.0])
    made = round_embeddings(x)
    moved = round_embeddings(torch.nextafter(x, torch.full_like(x, torch.inf)))
    assert (made != moved).float().mean() < 0.01
    border = torch.full((9, 1), 7.0 + 7e-3 / 128).nextafter(torch.where(torch.arange(9) % 2 == 0, 8.0, 6.0)[:, None])
    assert (
        len(round_embeddings(border).unique()) == 1
    )  # a constant column, whatever lies between two values of the grid
    assert ((made - x).abs() <= 0.012 * x.std(dim=0).clamp_min(1e-2)).all()
