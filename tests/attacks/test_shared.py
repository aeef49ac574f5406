"""What attacks on the whole run compute together, against the formula written out for each block."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.attacks.label.base import Target
from cutlayer.attacks.label.bilinear import _products
from cutlayer.attacks.label.blocks import Blocks
from cutlayer.attacks.label.history import Gradients, HistoryView, unit_variance
from cutlayer.attacks.label.joint_spectral import _first_scores, _scores_by_epoch, joint_scores
from cutlayer.attacks.label.off_norm import squared_lengths
from cutlayer.attacks.label.similarity import _by_class, _scaled
from cutlayer.attacks.label.spectra import Spectra, spectra
from cutlayer.channel.row_history import NO_STEP, FollowedEpoch
from cutlayer.kernels.statistics.spectral import project
from cutlayer.problem.task import Task

ROWS, WIDTH, EPOCHS, STEPS = 700, 12, 3, 6
PARTY = "telco"


@pytest.fixture(scope="module")
def view() -> HistoryView:
    """Gradients of several steps and epochs, of which some rows of each epoch are in no batch."""
    draw = torch.Generator().manual_seed(3)
    signs = torch.where(torch.rand(ROWS, generator=draw) < 0.3, 1.0, -1.0)
    epochs = []
    for number in range(EPOCHS):
        steps = torch.randint(STEPS, (ROWS,), generator=draw)
        steps[torch.randint(ROWS, (20,), generator=draw)] = NO_STEP
        present = (steps != NO_STEP)[:, None]
        mix = torch.randn(WIDTH, WIDTH, generator=draw)
        noise = torch.randn(ROWS, WIDTH, generator=draw) @ mix
        gradients = 1e-3 * (signs[:, None] * 2 * mix[0] + noise + 1) * present
        embeddings = (torch.randn(ROWS, WIDTH, generator=draw) @ mix + 3) * present
        epochs.append(FollowedEpoch(number, torch.arange(ROWS), steps, {PARTY: embeddings}, {PARTY: gradients}))
    return HistoryView(PARTY, Task("binary", ("0", "1")), epochs)


@pytest.mark.parametrize("whole", [False, True])
def test_spectra_are_the_singular_values_of_each_block(view: HistoryView, whole: bool) -> None:
    gradients = view.gradients
    blocks = gradients.whole_epochs() if whole else gradients.blocks
    assert min(len(parts) for parts in gradients.blocks) > 1, "the blocks of an epoch are added up"
    for matrix, parts, found in zip(gradients.matrices, blocks, spectra(view, whole=whole), strict=True):
        for number, part in enumerate(parts):
            rows = matrix[part].double()
            _, singular, directions = torch.linalg.svd(rows - rows.mean(dim=0), full_matrices=False)
            torch.testing.assert_close(found.variances[number], singular.square() / len(rows), rtol=1e-5, atol=1e-9)
            agreement = (directions * found.directions[number].T).sum(dim=1).abs()
            torch.testing.assert_close(agreement, torch.ones(WIDTH, dtype=torch.float64), rtol=0, atol=1e-5)


def test_equal_rows_have_no_direction() -> None:
    """Rounding errors of their mean are not scaled up to gradients."""
    rows, steps = torch.arange(200), torch.zeros(200, dtype=torch.int64)
    equal = torch.full((200, 5), 0.1) * torch.tensor([1.0, -3.0, 7e-3, 0.2, 1 / 3])
    epochs = [FollowedEpoch(number, rows, steps, {}, {PARTY: equal}) for number in range(2)]
    view = HistoryView(PARTY, Task("binary", ("0", "1")), epochs)
    assert all(bool(matrix.eq(0).all()) for matrix in view.gradients.matrices)
    assert bool(_scores_by_epoch(view, 0.3, whole=False).eq(0).all())


@pytest.mark.parametrize("width", [3, 700], ids=["all blocks at once", "block by block"])
def test_rows_along_their_weighted_sum(width: int) -> None:
    draw = torch.Generator().manual_seed(1)
    matrix, weights = torch.randn(90, width, generator=draw), torch.randn(90, generator=draw)
    parts = torch.split(torch.randperm(90, generator=draw)[:80], [25, 40, 15])
    group = Blocks.of(parts)
    along = group.scatter(group.along(group.prepared(matrix), group.gather(weights)), 90)
    for part in parts:
        torch.testing.assert_close(along[part], matrix[part] @ (matrix[part].T @ weights[part]), rtol=1e-4, atol=1e-3)
    rest = torch.ones(90, dtype=torch.bool)
    rest[torch.cat(parts)] = False
    assert bool(along[rest].eq(0).all())


def test_a_block_of_all_rows_in_their_order_is_not_copied() -> None:
    matrix = torch.randn(50, 4, generator=torch.Generator().manual_seed(2))
    assert Blocks.of([torch.arange(50)]).gather(matrix).data_ptr() == matrix.data_ptr()
    turned = torch.arange(50).flip(0)
    torch.testing.assert_close(Blocks.of([turned]).gather(matrix)[0], matrix.flip(0))


@pytest.mark.parametrize("whole", [False, True])
def test_rounds_are_those_of_single_blocks(view: HistoryView, whole: bool) -> None:
    """One round of leave-one-epoch-out directions at a time, on each block by itself."""
    gradients = view.gradients
    blocks = gradients.whole_epochs() if whole else gradients.blocks
    expected = _first_scores(view, blocks, 0.3, whole=whole)
    for epoch, parts in enumerate(blocks):
        for part in parts:
            single = unit_variance(project(gradients.matrices[epoch][part]))
            cosine = float(single @ expected[part, epoch]) / len(part)
            assert abs(cosine) == pytest.approx(1, abs=1e-5)
    for _ in range(10):
        total, updated = expected.sum(dim=1), torch.zeros_like(expected)
        for epoch, parts in enumerate(blocks):
            for part in parts:
                rest = (total - expected[:, epoch])[part]
                rows = gradients.matrices[epoch][part].double()
                direction = rows.T @ (rest - rest.mean())
                updated[part, epoch] = unit_variance(rows @ direction / torch.linalg.vector_norm(direction))
        expected = updated
    torch.testing.assert_close(_scores_by_epoch(view, 0.3, whole=whole), expected, rtol=0, atol=2e-3)


def test_one_epoch_has_the_directions_of_its_batches_first(view: HistoryView) -> None:
    single = HistoryView(PARTY, view.task, view.epochs[:1])
    first, second = joint_scores(single, 0.3)
    assert torch.equal(first, _scores_by_epoch(single, 0.3, whole=False))
    assert torch.equal(second, _scores_by_epoch(single, 0.3, whole=True))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("rank", [2, 6, WIDTH])
def test_lengths_off_the_top_directions(rank: int) -> None:
    """Also where rows vary in a few directions alone, and with one block of fewer of them than the other."""
    draw = torch.Generator().manual_seed(4)
    blocks = []
    for dropped in (0, 1):
        basis = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=draw, dtype=torch.float64)).Q[: rank - dropped]
        scaled = torch.randn(80, rank - dropped, generator=draw, dtype=torch.float64) * 2.0 ** -torch.arange(
            rank - dropped
        )
        blocks.append((scaled - scaled.mean(dim=0)) @ basis)
    rows = torch.stack(blocks)
    found = squared_lengths(rows, Spectra.of(rows.mT @ rows, torch.tensor([80.0, 80.0])), 5)
    for number, block in enumerate(blocks):
        _, singular, directions = torch.linalg.svd(block, full_matrices=False)
        for count in range(5):
            off = block - block @ directions[:count].T @ directions[:count]
            torch.testing.assert_close(found[f"off_{count}"][number], off.square().sum(dim=1), rtol=1e-8, atol=1e-12)
        real = singular > 1e-6 * singular[0]
        radius = ((block @ directions[real].T) / singular[real]).square().sum(dim=1) * len(block)
        torch.testing.assert_close(found["radius"][number], radius, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("whole", [False, True])
def test_products_of_whitened_coordinates(view: HistoryView, whole: bool) -> None:
    """Each block's coordinates along 6 directions of its gradients, times 4 of the epoch's embeddings."""

    def whitened(x: Tensor, directions: int, limit: float) -> Tensor:
        moved = (x - x.mean(dim=0)).double()
        along, singular, _ = torch.linalg.svd(moved, full_matrices=False)
        assert float((singular[:directions] / singular[0]).min()) > 1e-6
        scaled: Tensor = along[:, :directions] * len(x) ** 0.5
        return scaled.clamp(-limit, limit)

    blocks = view.gradients.whole_epochs() if whole else view.gradients.blocks
    for epoch, found in enumerate(_products(view, blocks, whole=whole)):
        embedded = whitened(view.epochs[epoch].embeddings[PARTY], 4, 5.0)
        for part in blocks[epoch]:
            top = whitened(view.gradients.matrices[epoch][part], 6, 6.0)
            both = torch.cat([top, (top[:, :, None] * embedded[part][:, None, :]).flatten(1)], dim=1)
            # The sign of a direction is arbitrary.
            torch.testing.assert_close(found[part].double().abs(), both.abs(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("target", [Target.GRADIENT, Target.EMBEDDING])
def test_similarity_is_the_cosine_with_each_centre(target: Target) -> None:
    """Spherical k-means written out; class 2 has no known row."""
    draw = torch.Generator().manual_seed(8)
    matrix = 1e-4 * (torch.randn(300, 6, generator=draw) + 0.2)
    known, labels = torch.tensor([4, 9, 30]), torch.tensor([0, 1, 1])
    found = _by_class(*_scaled(matrix, target), known, labels, 3)
    moved = matrix.double() / matrix.abs().max()
    moved = moved - moved.mean(dim=0) if target is Target.EMBEDDING else moved
    unit = functional.normalize(moved, dim=1)
    centres = torch.zeros(3, 6, dtype=torch.float64)
    for code in (0, 1):
        own = known[labels == code]
        centres[code] = functional.normalize(unit[own].mean(dim=0), dim=0)
        gap = torch.linalg.vector_norm(moved - moved[own].mean(dim=0), dim=1)
        torch.testing.assert_close(found["distance"][:, code].double(), -gap / gap.mean(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found["cosine"][:, code].double(), unit @ centres[code], rtol=1e-4, atol=1e-5)
    assert found["cosine"][:, 2].eq(-2).all()
    assert found["distance"][:, 2].eq(-2).all()
    for _ in range(10):
        nearest = (unit @ centres.T).argmax(dim=1)
        centres = torch.stack([functional.normalize(unit[nearest == code].sum(dim=0), dim=0) for code in range(3)])
    torch.testing.assert_close(found["clusters"].double(), unit @ centres.T, rtol=1e-4, atol=1e-4)


def test_present_rows_and_scale_of_gradients(view: HistoryView) -> None:
    gradients = view.gradients
    assert isinstance(gradients, Gradients)
    assert view.gradients is gradients, "gathered once"
    for number, parts in enumerate(gradients.blocks):
        absent = np.setdiff1d(np.arange(ROWS), torch.cat(parts).numpy())
        assert bool(gradients.matrices[number][torch.from_numpy(absent)].eq(0).all())
        for part in parts:
            raw = view.epochs[number].gradients[PARTY][part].double()
            moved = raw - raw.mean(dim=0)
            expected = moved / moved.square().sum(dim=1).mean().sqrt()
            torch.testing.assert_close(gradients.matrices[number][part].double(), expected, rtol=1e-4, atol=1e-5)
