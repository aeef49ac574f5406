"""DP-SGD of the bottom model: row gradients, clipping, the noise's scale, what it costs, and whole runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cutlayer.accounting import DPSGD, Composition, ReleasePlan
from cutlayer.errors import ConfigError
from cutlayer.kernels.gradients import row_gradients as kernel
from cutlayer.kernels.gradients.row_gradients import row_gradients
from cutlayer.kernels.noise import lattice
from cutlayer.kernels.noise.aes import standard_normal
from cutlayer.kernels.noise.lattice import FLOAT64_INTEGERS, lattice_step
from cutlayer.kernels.noise.rounded_normal import rounded_normal
from cutlayer.kernels.rows.row_norms import clip_rows
from cutlayer.models import BottomModel, Inputs, build_bottom
from cutlayer.models.embedding_table import EmbeddingTable
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.protections import build, build_chain
from cutlayer.protections.catalogue import DPBottom
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.views import Mode, PassiveView, Update
from tests.protections.float_attack import impossible
from tests.protections.setup import KEY, context

TABLE, IMAGE = Inputs((5, 3), 4), Inputs((), 64, (1, 8, 8))
BOTTOMS: tuple[tuple[Mapping[str, Any], Inputs], ...] = (
    ({"kind": "mlp", "hidden": [6, 3]}, TABLE),
    ({"kind": "wide_deep", "hidden": [6, 3]}, TABLE),
    ({"kind": "linear", "width": 3}, TABLE),
    ({"kind": "tabular", "hidden": [6, 3], "frequencies": 3, "dropout": 0}, TABLE),
    ({"kind": "cnn", "channels": [2, 3], "width": 4}, IMAGE),
)
KINDS = [str(raw["kind"]) for raw, _ in BOTTOMS]


def made(raw: Mapping[str, Any], inputs: Inputs, n: int = 9) -> tuple[BottomModel, tuple[Tensor, Tensor], Tensor]:
    """A bottom model, a batch and a gradient at its output."""
    torch.manual_seed(1)
    bottom = build_bottom(raw, inputs)
    cards = torch.tensor(inputs.cardinalities)
    codes = (torch.rand(n, len(cards)) * cards).int()
    return bottom, (codes, torch.randn(n, inputs.numbers)), torch.randn(n, bottom.width)


def by_hand(bottom: BottomModel, columns: tuple[Tensor, ...], upstream: Tensor) -> Tensor:
    """One backward pass a row."""
    rows = []
    for row in range(len(upstream)):
        bottom.zero_grad(set_to_none=False)
        bottom(*(column[row : row + 1] for column in columns)).backward(upstream[row : row + 1])
        rows.append(torch.cat([p.grad.flatten() for p in bottom.parameters() if p.grad is not None]))
    return torch.stack(rows)


def protection(n: float = 1.0, clip: float = 1.0, key: bytes = KEY) -> DPBottom:
    built = build("dp_bottom", {"clip": clip, "noise_multiplier": n}, "privacy")
    built.setup(context(party="telco", peers=("bank",), task=None, noise=Noise(key)))
    assert isinstance(built, DPBottom)
    return built


def view(step: int = 0) -> PassiveView:
    return PassiveView(Mode.TRAIN, 0, step, torch.arange(9), lambda rows: rows)


def gradients(bottom: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in bottom.parameters() if p.grad is not None])


@pytest.mark.parametrize(("raw", "inputs"), BOTTOMS, ids=KINDS)
def test_row_gradients_are_those_of_one_pass_a_row(
    raw: Mapping[str, Any], inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    bottom, columns, upstream = made(raw, inputs)
    monkeypatch.setattr(kernel, "MAX_NUMBERS", 4 * sum(p.numel() for p in bottom.parameters()))
    chunks = list(row_gradients(bottom, columns, upstream))
    assert [len(chunk) for chunk in chunks] == [4, 4, 1]
    torch.testing.assert_close(torch.cat(chunks), by_hand(bottom, columns, upstream), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_row_gradients_are_those_of_opacus() -> None:
    grad_sample = pytest.importorskip("opacus.grad_sample")
    bottom, columns, upstream = made(*BOTTOMS[0])
    mine = torch.cat(list(row_gradients(bottom, columns, upstream)))
    for module in bottom.modules():
        if isinstance(module, EmbeddingTable):
            module.__class__ = nn.Embedding  # the class that Opacus knows; it computes the same
    theirs = grad_sample.GradSampleModule(bottom, loss_reduction="sum")
    (theirs(*columns) * upstream).sum().backward()
    wanted = torch.cat([p.grad_sample.flatten(1) for p in bottom.parameters()], dim=1)
    torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("clip", [0.5, 1e6])
def test_the_update_is_the_mean_of_clipped_row_gradients(clip: float) -> None:
    """A cut gradient is of the mean over the batch; the clip is for the gradient of a row's own loss."""
    bottom, columns, upstream = made(*BOTTOMS[0])
    rows = by_hand(bottom, columns, 9 * upstream)
    wanted = (rows * (clip / rows.norm(dim=1, keepdim=True)).clamp(max=1)).mean(0)
    protection(n=1e-12, clip=clip).update(Update(bottom, columns, upstream), view())
    torch.testing.assert_close(gradients(bottom), wanted, rtol=1e-4, atol=1e-5)
    if clip > 1e3:
        bottom.zero_grad()
        bottom(*columns).backward(upstream)
        torch.testing.assert_close(gradients(bottom), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wrong", [1.0, 2 / 3, 3 / 2])
def test_the_noise_has_the_scale_that_the_ledger_counts(wrong: float) -> None:
    """Where no row has a gradient all is noise: of deviation multiplier x C over the rows of the batch."""
    bottom, columns, upstream = made({"kind": "mlp", "hidden": [64, 64]}, TABLE)
    guard, seen = protection(n=1.7 * wrong, clip=0.3), []
    for step in range(20):
        guard.update(Update(bottom, columns, torch.zeros_like(upstream)), view(step))
        seen.append(gradients(bottom))
    noise = torch.cat(seen).double() * 9 / (1.7 * 0.3)
    off = abs(float(noise.square().mean()) - 1) / math.sqrt(2 / len(noise))
    assert (off < 4) == (wrong == 1.0)


def test_noise_is_repeated_by_its_owner_alone() -> None:
    bottom, columns, upstream = made(*BOTTOMS[0])
    draws = []
    for key, step, scale in ((KEY, 0, 1.0), (KEY, 0, 1.0), (bytes(32), 0, 1.0), (KEY, 1, 1.0), (KEY, 0, -1.0)):
        protection(n=5.0, key=key).update(Update(bottom, columns, scale * upstream), view(step))
        draws.append(gradients(bottom))
    assert torch.equal(draws[0], draws[1])
    assert all(float((draws[0] - other).abs().max()) > 0.1 for other in draws[2:])


def test_a_replaced_row_moves_the_sum_by_twice_the_clip_at_most() -> None:
    bottom, (codes, numbers), upstream = made(*BOTTOMS[0])
    guard = protection(n=1e-12, clip=0.5)
    sums = []
    for sign in (1, -1, math.nan):
        other = upstream.clone()
        other[4] *= 1e6 * sign
        guard.update(Update(bottom, (codes, numbers), other), view())
        sums.append(9 * gradients(bottom))
    assert float((sums[0] - sums[1]).norm()) == pytest.approx(1.0, rel=1e-3)
    assert float((sums[0] - sums[2]).norm()) == pytest.approx(0.5, rel=1e-3)


def norm_squared(values: Tensor) -> Fraction:
    return sum((Fraction(value) ** 2 for value in values.tolist()), Fraction(0))


def test_the_sum_moves_by_twice_the_clip_at_most_in_exact_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums that the noise is added to, of eight rows and of the same with a row replaced by its opposite."""
    bottom, (codes, numbers), upstream = made(*BOTTOMS[0], n=8)
    sums = list[Tensor]()
    original = lattice.lattice_sum

    def watched(rows: Tensor, step: float) -> Tensor:
        sums.append(original(rows, step))
        assert torch.equal(sums[-1] / step, (sums[-1] / step).round())
        return sums[-1]

    monkeypatch.setattr(lattice, "lattice_sum", watched)
    for clip in (0.3, 1.0, 7.7):
        sums.clear()
        for factor in (1e6, -1e6):
            other = upstream.clone()
            other[4] *= factor
            protection(n=3.0, clip=clip).update(Update(bottom, (codes, numbers), other), view())
        assert norm_squared(sums[0] - sums[1]) <= 4 * Fraction(clip) ** 2
        assert norm_squared(sums[0] - sums[1]) > 3.99 * Fraction(clip) ** 2


def test_the_gradient_is_the_rounded_mean_of_exact_sum_and_noise() -> None:
    bottom, columns, upstream = made(*BOTTOMS[0])
    guard = protection(n=1.3, clip=0.7)
    seen: dict[str, Tensor] = {}

    class Watched(Noise):
        def key(self, *, hook: str, peer: str, step: int, content: Tensor) -> bytes:
            seen["total"] = content
            return KEY

    guard.context = replace(guard.context, noise=Watched(KEY))
    guard.update(Update(bottom, columns, upstream), view())
    sigma = 1.3 * 0.7
    step = lattice_step(sigma, 9 * 0.7, FLOAT64_INTEGERS)
    noise = rounded_normal(KEY, b"dp_bottom", tuple(seen["total"].shape), sigma, step)
    exact = [(Fraction(a) + Fraction(b)) / 9 for a, b in zip(seen["total"].tolist(), noise.tolist(), strict=True)]
    assert gradients(bottom).tolist() == [float(np.float32(float(value))) for value in exact]


@pytest.mark.parametrize("lattice", [True, False])
def test_no_value_of_the_gradient_excludes_a_row(lattice: bool) -> None:
    """The attacker knows every row but one, of which there are two candidates; eight rows divide without rounding."""
    bottom, columns, upstream = made(*BOTTOMS[2], n=8)
    other = upstream.clone()
    other[4] += 1e-3
    clipped = [clip_rows(by_hand(bottom, columns, 8 * item), 1.0) for item in (upstream, other)]
    steps, sigma = 100, 1.9  # under a power of two, float32 noise leaves out few values
    bit = torch.rand(steps, generator=torch.Generator().manual_seed(2)) < 0.5
    score = torch.zeros(steps)
    for step in range(steps):
        if lattice:
            protection(n=sigma).update(Update(bottom, columns, other if bit[step] else upstream), view(step))
            released = 8 * gradients(bottom)
        else:
            total = clipped[int(bit[step])].sum(0)
            released = torch.add(total, standard_normal(KEY, b"%d" % step, tuple(total.shape)), alpha=sigma)
        first, second = (int(impossible(released, rows.sum(0), sigma).sum()) for rows in clipped)
        score[step] = first - second
    auc = roc_auc(score, bit)
    assert abs(auc - 0.5) < 0.17 if lattice else auc > 0.95


def test_noise_that_no_lattice_holds_is_refused() -> None:
    with pytest.raises(ConfigError, match="standard deviation of the noise from 2"):
        protection(n=1e-20, clip=1e-20).event(ReleasePlan(training=1))


@pytest.mark.parametrize("epochs", [1, 4])
def test_it_costs_one_gaussian_release_an_epoch_of_sensitivity_two(epochs: int) -> None:
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    event = protection(n=3.0).event(ReleasePlan(training=epochs, validation=epochs, test=1))
    assert event == DPSGD(3.0, epochs)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-3)
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(3.0 / 2), epochs))  # twice the sensitivity of adding a row
    assert Composition.of([event]).epsilon(1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=0.01)


def test_epsilon_and_delta_are_for_the_whole_run() -> None:
    plan = ReleasePlan(training=20, validation=20, test=1)
    built = build("dp_bottom", {"clip": 1.0, "epsilon": 4.0, "delta": 1e-5}, "privacy")
    assert Composition.of([built.event(plan)]).epsilon(1e-5) == pytest.approx(4.0, rel=1e-6)


def test_a_bottom_model_that_draws_is_refused() -> None:
    """The second pass, for the row gradients, would drop out other units than the first."""
    chain = build_chain("telco", "passive", {"dp_bottom": {"clip": 1.0, "noise_multiplier": 1.0}}, "privacy")
    chain.check_bottom(build_bottom({"kind": "mlp"}, TABLE), TABLE)
    with pytest.raises(ConfigError, match="draws no random numbers, for dp_bottom of telco"):
        chain.check_bottom(build_bottom({"kind": "mlp", "dropout": 0.01}, TABLE), TABLE)


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        ({"dp_bottom": {"clip": 1.0, "noise_multiplier": 1.0}, "nopeek": {"alpha": 0.1}}, "dp_bottom without nopeek"),
        ({"dp_bottom": {"clip": 1.0, "epsilon": 1.0}}, "either epsilon and delta or noise_multiplier"),
        ({"dp_bottom": {"clip": -1.0, "noise_multiplier": 1.0}}, "dp_bottom.clip"),
        ({"dp_bottom": {"clip": 1.0, "noise_multiplier": 0.0}}, "dp_bottom.noise_multiplier"),
    ],
)
def test_what_cannot_be_meant_is_refused(privacy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_chain("telco", "passive", privacy, "parties.telco.privacy")


def test_it_is_refused_beside_a_single_release() -> None:
    with pytest.raises(ConfigError, match="leave dp_bottom out"):
        protection().event(replace(ReleasePlan(training=1), once=True))


def test_two_scales_of_noise_on_the_same_rows_do_not_cancel() -> None:
    """The attack: with one draw at two scales, the sum of row gradients is the solution of two equations."""
    bottom, columns, upstream = made(*BOTTOMS[0])
    noisy = []
    for n in (1.0, 1.5, 1e-12):  # one step of the lattice for the first two
        protection(n=n, clip=1024.0).update(Update(bottom, columns, upstream), view())
        noisy.append(gradients(bottom))
    first, second, clean = noisy
    assert float((3 * first - 2 * second - clean).abs().mean()) > 10
