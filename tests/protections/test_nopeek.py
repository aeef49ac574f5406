"""NoPeek against its definition, and a bottom model that learns to depend less on its inputs."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from cutlayer.accounting import ReleasePlan
from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError, NotApplied
from cutlayer.protections import build
from cutlayer.protections.contract.views import Mode, PassiveView
from tests.parties.runs import PASSIVES, raw_job, run, tables
from tests.protections.setup import protection

N = 50
TELCO = PASSIVES[0]
INPUTS = torch.randn(N, 6, generator=torch.Generator().manual_seed(0))


def term(e, alpha=0.5, inputs=lambda rows: INPUTS[rows]):
    one = protection("nopeek", {"alpha": alpha}, task=None, party="telco", peers=("bank",))
    rows = torch.arange(N).flip(0)
    view = PassiveView(Mode.TRAIN, 0, 0, rows, lambda some: INPUTS[some], e, torch.zeros_like(e), inputs)
    return one.local_loss(view)


def distance_correlation(x, y):
    """By its definition, from doubly centred distance matrices."""

    def centred(rows):
        a = cdist(rows, rows)
        return a - a.mean(0) - a.mean(1, keepdims=True) + a.mean()

    a, b = centred(x), centred(y)
    return (a * b).mean() / np.sqrt((a * a).mean() * (b * b).mean())


def test_the_term_is_alpha_times_the_distance_correlation_with_the_batchs_rows():
    e = torch.tanh(INPUTS.flip(0)[:, :2]) + 0.1 * torch.randn(N, 2, generator=torch.Generator().manual_seed(1))
    expected = distance_correlation(INPUTS.flip(0).double().numpy(), e.double().numpy())
    assert 0.3 < expected < 0.9
    assert term(e).item() == pytest.approx(0.5 * expected, rel=1e-5)


def test_descending_it_makes_the_embedding_depend_less():
    weights = torch.eye(6)[:, :3].clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=0.05)
    rows = INPUTS.flip(0)
    before = term(rows @ weights).item()
    for _ in range(25):
        optimizer.zero_grad()
        term(rows @ weights).backward()
        optimizer.step()
    assert term(rows @ weights).item() < before - 0.1


def test_it_refuses_to_do_nothing():
    with pytest.raises(NotApplied, match="no inputs"):
        term(torch.zeros(N, 2), inputs=None)


def test_it_refuses_a_bottom_model_that_takes_no_step():
    with pytest.raises(ConfigError, match="one release"):
        build("nopeek", {"alpha": 0.1}, "privacy").event(ReleasePlan(1, once=True))


@pytest.mark.parametrize("options", [{}, {"alpha": 0.0}, {"alpha": -1.0}, {"alpha": float("inf")}, {"alpa": 1.0}])
def test_bad_options_are_errors(options):
    with pytest.raises(ConfigError, match=r"privacy\.nopeek"):
        build("nopeek", options, "privacy")


def test_the_bottom_model_learns_from_both_losses(tmp_path):
    """With hardly any weight on the term the run is that without it; with much weight it is another."""

    def losses(name, alpha):
        raw = raw_job()
        raw["parties"][TELCO]["privacy"] = {} if alpha is None else {"nopeek": {"alpha": alpha}}
        return run(validated(Job, raw, ""), tables(), tmp_path / name).active.step_losses

    plain = losses("plain", None)
    assert losses("little", 1e-9) == pytest.approx(plain, abs=1e-5)
    assert losses("much", 10.0)[1:] != pytest.approx(plain[1:], abs=1e-4)
