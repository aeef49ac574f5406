"""The `tabular` bottom model: its formula row by row in NumPy, and which columns have periodic embeddings."""

from __future__ import annotations

import numpy as np
import torch

from cutlayer.models import Inputs, build_bottom
from cutlayer.models.tabular import TabularBottom

SECTION = {"kind": "tabular", "hidden": [5, 4], "embedding": 2, "frequencies": 6, "number_embedding": 3, "sigma": 0.7}
ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805


def selu(x: np.ndarray) -> np.ndarray:
    return SCALE * np.where(x > 0, x, ALPHA * np.expm1(x))


def by_hand(weights: dict[str, np.ndarray], codes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """One row, one cosine at a time; the second column of codes begins after the three of the first."""
    inputs = [
        *weights["categories.table.weight"][codes[0]],
        *weights["categories.table.weight"][3 + codes[1]],
        *numbers,
    ]
    for column, x in enumerate(numbers):
        for combination in range(3):
            total = weights["numbers.bias"][column, combination]
            for cosine in range(6):
                angle = 2 * np.pi * weights["numbers.frequencies"][column, cosine] * x
                wave = np.cos(angle + weights["numbers.phases"][column, cosine])
                total += weights["numbers.weight"][column, cosine, combination] * wave
            inputs.append(total)
    x = np.array(inputs) * weights["scale.factors"]
    for layer in range(2):
        x = selu(weights[f"layers.{layer}.linear.weight"] @ x + weights[f"layers.{layer}.linear.bias"])
    return x


def test_each_row_is_embedded_by_the_formula() -> None:
    torch.manual_seed(0)
    model = build_bottom(SECTION, Inputs((3, 4), 2)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    codes = torch.tensor([[0, 3], [2, 0], [1, 1]], dtype=torch.int32)
    numbers = torch.randn(3, 2, dtype=torch.float64)
    with torch.no_grad():
        got = model(codes, numbers).numpy()
    for row in range(3):
        np.testing.assert_allclose(got[row], by_hand(weights, codes[row].numpy(), numbers[row].numpy()), rtol=1e-9)


def test_the_first_frequencies_have_the_stated_deviation() -> None:
    torch.manual_seed(0)
    model = build_bottom(SECTION | {"frequencies": 400}, Inputs((), 50))
    assert isinstance(model, TabularBottom)
    assert model.numbers is not None
    assert abs(float(model.numbers.frequencies.detach().std()) - 0.7) < 0.02  # 4 standard errors of 20,000


def test_an_unknown_category_adds_nothing_until_it_is_trained() -> None:
    model = build_bottom(SECTION, Inputs((3, 4), 2)).eval()
    numbers = torch.randn(1, 2).expand(5, 2)
    codes = torch.tensor([[0, 0], [1, 1], [2, 2], [0, 3], [2, 0]], dtype=torch.int32)
    embedding = model(codes, numbers)
    torch.testing.assert_close(embedding, embedding[:1].expand(5, 4))


def test_pixels_have_no_periodic_embedding() -> None:
    model = build_bottom(SECTION, Inputs((), 3 + 16, (1, 4, 4)))
    assert isinstance(model, TabularBottom)
    assert model.numbers is not None
    assert model.numbers.frequencies.shape == (3, 6)
    assert model.scale.factors.shape == (3 * 4 + 16,)
    pixels_alone = build_bottom(SECTION, Inputs((), 16, (1, 4, 4)))
    assert pixels_alone(torch.zeros(2, 0, dtype=torch.int32), torch.randn(2, 16)).shape == (2, 4)


def test_dropout_acts_in_training_alone() -> None:
    torch.manual_seed(0)
    model = build_bottom(SECTION | {"dropout": 0.5}, Inputs((3,), 4))
    batch = torch.zeros(8, 1, dtype=torch.int32), torch.ones(8, 4)
    assert not torch.equal(*model(*batch)[:2])
    model.eval()
    torch.testing.assert_close(*model(*batch)[:2])
