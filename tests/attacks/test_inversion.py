from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sklearn.metrics import r2_score

from cutlayer.attacks.catalogue import Inversion
from cutlayer.attacks.feature.base import Reconstruction, encoded_matrix, encoded_slices
from cutlayer.attacks.feature.inversion import column_weights
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.audit.features.images import ImagePairs
from cutlayer.audit.features.measures import measure_reconstruction
from cutlayer.data.encoded import ColumnSpec
from cutlayer.data.images import ImageSpec
from cutlayer.errors import DataError
from cutlayer.results.features import FeatureResult
from cutlayer.training.malicious_runs import auxiliary_indices

COLUMNS = ColumnSpec((3, 100), 2, ("plan", "shop"), ("age", "bill"))
ABOUT = {"run": "this run", "party": "telco", "attack": "inversion", "release": "toy", "known": 0, "rows": 0}


def table(rows: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    codes = torch.stack([torch.randint(0, n, (rows,), generator=draw) for n in (3, 100)], dim=1).int()
    return codes, torch.randn(rows, 2, generator=draw)


def figure(values: torch.Tensor) -> FeatureResult:
    codes, numbers = table()
    known = Auxiliary(COLUMNS, torch.arange(20), codes[:20], numbers[:20])
    made = Reconstruction(torch.arange(20, 60), values)
    return measure_reconstruction(made, known, (codes[20:], numbers[20:]), ABOUT)


def test_r2_and_mse_of_each_column_are_those_of_scikit_learn() -> None:
    codes, numbers = table()
    actual = encoded_matrix(COLUMNS, codes, numbers)
    rebuilt = actual[20:] + 0.3 * torch.randn(40, actual.shape[1], generator=torch.Generator().manual_seed(2))
    found = {column.column: column for column in figure(rebuilt).columns}
    mean = actual[:20].mean(dim=0).expand(40, -1)
    for name, part in encoded_slices(COLUMNS).items():
        truth = actual[20:, part].double().numpy()
        for made, value, mse in (
            (rebuilt, found[name].value, found[name].mse),
            (mean, found[name].baseline, found[name].baseline_mse),
        ):
            guess = made[:, part].double().numpy()
            middle = truth.mean(axis=0)  # taken off, all entries of a column are one output of mean zero
            wanted = r2_score((truth - middle).ravel(), (guess - middle).ravel())
            assert value == pytest.approx(wanted, abs=1e-6)
            assert mse == pytest.approx(((guess - truth) ** 2).mean(), rel=1e-6)
    whole = figure(rebuilt)
    assert whole.value == pytest.approx(sum(item.value for item in found.values()) / 4)
    assert whole.low < whole.value < whole.high
    assert whole.metrics["mse"] == pytest.approx(float((rebuilt - actual[20:]).square().mean()), rel=1e-6)


def test_a_perfect_reconstruction_has_r2_one_and_the_mean_none() -> None:
    actual = encoded_matrix(COLUMNS, *table())
    assert figure(actual[20:]).value == pytest.approx(1.0)
    blind = figure(actual[:20].mean(dim=0).expand(40, -1))
    assert blind.value == pytest.approx(blind.baseline)
    assert not blind.gains


def test_columns_lie_where_the_places_say() -> None:
    codes, numbers = table(5)
    matrix, slices = encoded_matrix(COLUMNS, codes, numbers), encoded_slices(COLUMNS)
    assert list(slices) == ["age", "bill", "plan", "shop"]
    assert torch.equal(matrix[:, slices["bill"]][:, 0], numbers[:, 1])
    assert torch.equal(matrix[:, slices["plan"]].argmax(dim=1), codes[:, 0].long())
    assert torch.equal(matrix[:, slices["shop"]].argmax(dim=1), codes[:, 1].long() % 64)
    assert matrix.shape[1] == 2 + 3 + 64


def test_every_column_weighs_the_same() -> None:
    targets = encoded_matrix(COLUMNS, *table()) * 7
    slices = encoded_slices(COLUMNS)
    weighted = (targets - targets.mean(dim=0)).square() * column_weights(targets, slices)
    assert all(float(weighted[:, at].sum(dim=1).mean()) == pytest.approx(0.25, rel=1e-5) for at in slices.values())
    targets[:, 0] = 3.0
    assert float(column_weights(targets, slices)[0]) == 0


def test_a_linear_embedding_is_inverted_and_noise_takes_it_away() -> None:
    draw = torch.Generator().manual_seed(5)
    numbers = torch.randn(500, 2, generator=draw)
    codes = torch.zeros(500, 0, dtype=torch.int32)
    columns = ColumnSpec((), 2, (), ("age", "bill"))
    slices = auxiliary_indices(500, 0)
    known = Auxiliary(columns, slices, codes[slices], numbers[slices])
    others = known.unknown(500)
    truth = codes[others], numbers[others]
    reached = []
    for noise in (0.0, 1.0, 100.0):
        embeddings = numbers @ torch.tensor([[1.0, 2.0], [0.5, -1.0]]) + noise * torch.randn(500, 2, generator=draw)
        made = Inversion()(FeatureView("telco", torch.arange(500), embeddings), Knowledge(auxiliary_rows=known))
        reached.append(measure_reconstruction(made, known, truth, ABOUT).value)
    assert reached[0] > 0.99
    assert 0.2 < reached[1] < 0.85  # at best 1 - noise / (noise + signal), unit noise on signals of 0.5 to 2
    assert abs(reached[2]) < 0.03


def test_the_auxiliary_rows_are_drawn_once_and_half_at_most() -> None:
    assert len(auxiliary_indices(5000, 1)) == 1000
    assert len(auxiliary_indices(300, 1)) == 150
    assert torch.equal(auxiliary_indices(300, 1), auxiliary_indices(300, 1))
    assert not torch.equal(auxiliary_indices(300, 1), auxiliary_indices(300, 2))
    slices = auxiliary_indices(300, 1)
    assert len(slices.unique()) == 150
    assert not torch.isin(Auxiliary(COLUMNS, slices, *table()).unknown(300), slices).any()


def spec(channels: int = 1, dtype: str = "uint8") -> ImageSpec:
    return ImageSpec(
        channels=channels, height=12, width=13, dtype=dtype, mean=(0.4,) * channels, deviation=(0.2,) * channels
    )


def test_the_best_the_median_and_the_worst_image_are_shown() -> None:
    draw = torch.Generator().manual_seed(7)
    pixels = torch.rand(5, 156, generator=draw)
    errors = torch.tensor([0.3, 0.02, 0.2, 0.1, 0.05])[:, None]
    columns = ColumnSpec((), 1, (), ("age",), spec())
    encoded = torch.cat([torch.zeros(5, 1), (pixels - 0.4) / 0.2], dim=1)
    made = (pixels + errors * torch.sign(0.5 - pixels) - 0.4) / 0.2
    rebuilt = ImagePairs(columns, encoded, torch.cat([torch.ones(5, 1), made], dim=1))
    expected = [-20 * torch.log10(error) for error in errors[:, 0]]
    assert rebuilt.psnr.tolist() == pytest.approx([float(each) for each in expected], abs=0.01)
    assert [picture.title for picture in rebuilt.pictures()] == ["best", "median", "worst"]
    assert [round(item.psnr) for item in rebuilt.pictures()] == [34, 20, 10]
    assert rebuilt.metrics()["ssim"] < 1
    assert rebuilt.pictures()[0].shape == (1, 12, 13)
    with pytest.raises(DataError, match="image column"):
        ImagePairs(replace(columns, image=None), encoded, encoded)


def test_small_images_and_odd_channels_have_fewer_figures() -> None:
    two = ColumnSpec((), 0, (), (), spec(2))
    rows = torch.zeros(3, 2 * 156)
    assert ImagePairs(two, rows, rows + 0.1).pictures() == ()
    small = ColumnSpec((), 0, (), (), spec().model_copy(update={"height": 4}))
    rows = torch.zeros(3, 52)
    assert ImagePairs(small, rows, rows + 0.1).metrics().keys() == {"psnr"}
