from __future__ import annotations

import pytest
import torch

from cutlayer.attacks.catalogue import Exact, Inversion
from cutlayer.attacks.feature import exact, kernel_ridge
from cutlayer.attacks.feature.base import encoded_matrix
from cutlayer.attacks.feature.exact import Matcher, codes_and_numbers, fit_bottom, precision_root
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.audit.features.measures import measure_reconstruction
from cutlayer.data.encoded import ColumnSpec
from cutlayer.errors import NotApplicable
from tests.conformance.feature_world import COLUMNS, Tanh

ABOUT = {"run": "this run", "party": "telco", "attack": "exact", "release": "toy", "known": 0, "rows": 0}
ROWS, KNOWN = 300, 60


def table() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    codes = torch.stack([torch.randint(0, n, (ROWS,), generator=draw) for n in (4, 6)], dim=1).int()
    return codes, torch.randn(ROWS, 3, generator=draw)


def weights(seed: int = 2) -> torch.Tensor:
    return torch.randn(13, 16, generator=torch.Generator().manual_seed(seed)) / 2


def reached(attack: Exact | Inversion, initial: torch.Tensor, noise: float = 0.0) -> float:
    codes, numbers = table()
    embeddings = Tanh(weights())(codes, numbers).detach()
    embeddings += noise * torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(3))
    known = Auxiliary(COLUMNS, torch.arange(KNOWN), codes[:KNOWN], numbers[:KNOWN])
    view = FeatureView("telco", torch.arange(ROWS), embeddings)
    made = attack(view, Knowledge(auxiliary_rows=known, initial_bottom=Tanh(initial)))
    return measure_reconstruction(made, known, (codes[KNOWN:], numbers[KNOWN:]), ABOUT).value


def test_initial_weights_give_more_than_the_known_rows_alone_and_noise_takes_it_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_ridge, "SCALES", (1.0,))
    monkeypatch.setattr(exact, "STEPS", 700)
    near = weights() + 0.1 * weights(5)
    alone = reached(Inversion(), near)
    assert reached(Exact(), weights(6)) > alone - 0.05  # wrong weights: the average falls back on inversion
    monkeypatch.setattr(exact, "STEPS", 300)  # right ones take fewer steps
    assert reached(Exact(), near) > alone + 0.03
    assert reached(Exact(), near, noise=30.0) < 0.1


def test_with_the_true_model_a_missing_column_is_matched() -> None:
    codes, numbers = table()
    model = Tanh(weights())
    known = Auxiliary(COLUMNS, torch.arange(KNOWN), codes[:KNOWN], numbers[:KNOWN])
    with torch.no_grad():
        truth = encoded_matrix(COLUMNS, codes, numbers)
        errors = 0.03 * torch.randn(100, 16, generator=torch.Generator().manual_seed(4))
        start = truth.clone()
        start[:, 3:7] = 0.25
        found = Matcher(model, known, model(codes, numbers), precision_root(errors)).match(start)
    assert float((found[:, 3:7].argmax(dim=1) == codes[:, 0]).double().mean()) > 0.85  # guesses: 1 in 2
    torch.testing.assert_close(found[:, 3:7].sum(dim=1), torch.ones(ROWS))


def test_the_model_of_the_bottom_comes_nearer_and_leaves_the_initial_one_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "STEPS", 350)
    codes, numbers = table()
    initial = Tanh(weights() + 0.3 * weights(5))
    before = initial.weights.detach().clone()
    embeddings = Tanh(weights())(codes, numbers).detach()
    known = Auxiliary(COLUMNS, torch.arange(ROWS), codes, numbers)
    model = fit_bottom(initial, known, embeddings, torch.arange(100), torch.arange(100, 150))
    assert torch.equal(initial.weights, before)
    with torch.no_grad():
        first, last = (float((item(codes, numbers) - embeddings)[150:].square().mean()) for item in (initial, model))
    assert last < first / 10
    assert not model.training


def test_the_root_is_of_the_inverse_second_moment() -> None:
    errors = torch.randn(500, 3, generator=torch.Generator().manual_seed(7)) @ torch.tensor(
        [[1.0, 0.5, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.1]]
    )
    root = precision_root(errors)
    torch.testing.assert_close(root @ root.T, torch.linalg.inv(errors.T @ errors / 500), rtol=0.02, atol=0.02)


def test_encoded_features_are_decoded() -> None:
    codes, numbers = table()
    found = codes_and_numbers(COLUMNS, encoded_matrix(COLUMNS, codes, numbers))
    assert torch.equal(found[0], codes)
    assert torch.equal(found[1], numbers)


def test_more_values_than_can_be_tried_are_refused() -> None:
    codes, numbers = table()
    columns = ColumnSpec((4, 65), 3, ("plan", "region"), ("age", "calls", "bill"))
    known = Auxiliary(columns, torch.arange(KNOWN), codes[:KNOWN], numbers[:KNOWN])
    view = FeatureView("telco", torch.arange(ROWS), torch.zeros(ROWS, 16))
    with pytest.raises(NotApplicable, match="categories of up to 64 codes and no image for exact"):
        Exact()(view, Knowledge(auxiliary_rows=known, initial_bottom=Tanh(weights())))
