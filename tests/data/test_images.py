"""Images from arrays and npz files to a store's batches."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from cutlayer.config import FeaturesConfig, TableConfig, validated
from cutlayer.data.encoded import ColumnSpec
from cutlayer.data.encoding import Encoder
from cutlayer.data.images import ImageSpec, image_column
from cutlayer.data.partition import halves, part_of
from cutlayer.data.party_data import PartyTable
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError, DataError
from cutlayer.models import Inputs

ROWS = 20
EVERY = torch.arange(ROWS)


def images(*shape: int, rows: int = ROWS, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, *shape), dtype=np.uint8)


def prepared(data: object, training: int = 12, folder: Path | None = None, **options: Any) -> Any:
    table = PartyTable("shop", data, "@row", **options)
    return table.prepare(np.arange(table.rows), np.arange(training), folder)


def standardised(raw: np.ndarray, training: int = 12) -> np.ndarray:
    """What a batch must be, written down independently: (n, channels * height * width)."""
    scaled = (raw if raw.ndim == 4 else raw[..., None]).astype(np.float64)
    scaled = scaled / 255 if raw.dtype == np.uint8 else scaled
    flat = scaled[:training].reshape(-1, scaled.shape[3])
    z = (scaled - flat.mean(axis=0)) / flat.std(axis=0)
    return np.stack([z[..., channel] for channel in range(z.shape[3])], axis=1).reshape(len(z), -1)


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3), (5, 7, 1)])
@pytest.mark.parametrize("kind", ["uint8", "float32", "float64", "int64"])
def test_a_batch_is_the_standardised_image_channels_first(shape: tuple[int, ...], kind: str, tmp_path: Path) -> None:
    raw = images(*shape).astype(kind) if "int" in kind else images(*shape).astype(kind) * 0.3 - 40
    for folder in (None, tmp_path):
        ready = prepared(raw, folder=folder)
        rows = torch.tensor([3, 19, 0])
        codes, numbers = ready.store.gather(rows)
        assert (codes.shape, numbers.dtype) == ((3, 0), torch.float32)
        wanted = standardised(raw.astype(np.uint8) if kind == "int64" else raw)
        np.testing.assert_allclose(numbers, wanted[rows], rtol=1e-4, atol=1e-5)
        height, width, channels = (*shape, 1)[:3]
        assert ready.columns.inputs == Inputs((), channels * height * width, (channels, height, width))
    assert Store.open(tmp_path).columns == ready.columns


def test_bytes_stay_bytes_in_the_store(tmp_path: Path) -> None:
    raw = images(6, 4, 3)
    store = prepared(raw, folder=tmp_path).store
    assert store.images is not None
    assert store.images.dtype == torch.uint8
    assert store.bytes == raw.nbytes
    np.testing.assert_array_equal(store.images, raw.transpose(0, 3, 1, 2))
    assert np.load(tmp_path / "images.npy", allow_pickle=False).dtype == np.uint8


def test_only_training_rows_set_the_scale() -> None:
    raw = images(6, 4, 3)
    changed = raw.copy()
    changed[12:] = 255
    first, second = prepared(raw), prepared(changed)
    assert first.encoder == second.encoder
    spec = first.encoder.image.spec
    flat = raw[:12].reshape(-1, 3) / 255
    np.testing.assert_allclose(spec.mean, flat.mean(axis=0))
    np.testing.assert_allclose(spec.deviation, flat.std(axis=0))
    assert prepared(changed, training=20).encoder != second.encoder


def test_a_channel_that_is_constant_in_training_becomes_zero() -> None:
    raw = images(6, 4, 2)
    raw[:12, ..., 1] = 9
    numbers = prepared(raw).store.gather(EVERY)[1].unflatten(1, (2, 6, 4))
    assert not numbers[:, 1].any()
    assert numbers[:, 0].any()
    assert bool(numbers.isfinite().all())


def test_the_mean_of_many_blocks_of_rows_is_that_of_all() -> None:
    raw = images(3, 2, rows=3000)
    spec = prepared(raw, training=2500).encoder.image.spec
    np.testing.assert_allclose(spec.mean, raw[:2500].mean() / 255)
    np.testing.assert_allclose(spec.deviation, raw[:2500].std() / 255)


def test_the_encoder_comes_back_from_json_and_encodes_new_images(tmp_path: Path) -> None:
    raw = images(6, 4)
    ready = prepared(raw, folder=tmp_path)
    encoder = Encoder.from_json((tmp_path / "encoder.json").read_text())
    assert encoder == ready.encoder
    again = PartyTable("shop", raw[5:9], encoder=encoder).encode_all()
    assert torch.equal(again.gather(torch.arange(4))[1], ready.store.gather(torch.arange(5, 9))[1])
    for other in (images(6, 5), raw.astype(np.float32)):
        with pytest.raises(DataError, match=r"expected images of shape \(6, 4, 1\) in uint8, got .*; as in training"):
            PartyTable("shop", other, encoder=encoder).encode_all()


def test_an_image_beside_other_columns() -> None:
    raw = images(4, 2)
    table = {"age": np.arange(ROWS) * 1.0, "image": raw, "city": ["Ulm", "Bonn"] * 10, "y": [0, 1] * 10}
    ready = prepared(table, label="y")
    codes, numbers = ready.store.gather(EVERY)
    assert ready.columns.inputs == Inputs((4,), 9, (1, 4, 2))
    assert codes[:2, 0].tolist() == [3, 2]
    np.testing.assert_allclose(numbers[:, 1:], standardised(raw), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(numbers[:, 0], (np.arange(ROWS) - 5.5) / np.arange(12).std(), rtol=1e-5)
    assert ready.labels.values.tolist() == [0, 1] * 10
    labels_alone = prepared(table, label="y", features=FeaturesConfig(include="none"))
    assert labels_alone.store is None
    with pytest.raises(DataError, match="expected one image column, got image, scan; leave the rest out"):
        prepared({**table, "scan": raw})


def test_a_parquet_file_with_tensors_holds_images_too(tmp_path: Path) -> None:
    raw = images(6, 4, 3)
    table = pa.table({"id": np.arange(ROWS), "scan": image_column(raw, "here")})
    parquet.write_table(table, tmp_path / "scans.parquet", row_group_size=7)
    ready = PartyTable("shop", TableConfig(path=tmp_path / "scans.parquet"), "id").prepare(
        np.arange(ROWS)[::-1].copy(), np.arange(8, ROWS)
    )
    numbers = ready.store.gather(EVERY)[1]
    np.testing.assert_allclose(numbers.flip(0), standardised(raw), rtol=1e-4, atol=1e-5)


def test_a_store_is_written_again_when_pixels_change_and_drops_the_images_it_no_longer_has(tmp_path: Path) -> None:
    raw = images(6, 4)
    before = prepared(raw, folder=tmp_path).store.fingerprint
    assert prepared(raw, folder=tmp_path).store.fingerprint == before
    changed = raw.copy()
    changed[-1, -1, -1] += 1
    assert prepared(changed, folder=tmp_path).store.fingerprint != before
    prepared({"a": np.arange(ROWS)}, folder=tmp_path)
    assert not (tmp_path / "images.npy").exists()


@pytest.mark.parametrize("damage", ["gone", "short", "type", "pickle"])
def test_damaged_images_are_told(tmp_path: Path, damage: str) -> None:
    raw = images(6, 4)
    prepared(raw, folder=tmp_path)
    path = tmp_path / "images.npy"
    if damage == "gone":
        path.unlink()
    elif damage == "pickle":
        path.write_bytes(pickle.dumps(raw))
    else:
        np.save(path, raw[:, None][:-1] if damage == "short" else raw[:, None].astype(np.float32))
    with pytest.raises(DataError, match="a whole store"):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3, 4, 5, 6)), r"an array of one to four dimensions, got shape \(2, 3, 4, 5, 6\)"),
        (np.zeros((2, 0, 4)), r"images of shape \(rows, height, width\)"),
        (np.zeros((2, 3, 28, 28)), "16 channels at most, on the last axis, got .*; move the channels to the end"),
        (np.full((2, 3, 4), 256), r"whole pixels in 0\.\.255, got 256\.\.256"),
        (np.full((2, 3, 4), -1), r"whole pixels in 0\.\.255, got -1\.\.-1"),
        (np.full((2, 3, 4), np.nan), "finite pixels, got NaN or infinity"),
        (np.full((2, 3, 4), "x"), "images of numbers, got <U1"),
        (np.full((2, 3, 4), None), "images of numbers, got object"),
    ],
)
def test_arrays_that_are_no_images(array: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=f"party shop: expected {message}"):
        PartyTable("shop", array)


def test_an_image_that_is_missing_or_named_a_category(tmp_path: Path) -> None:
    column = pa.concat_arrays([image_column(images(2, 2), "here"), pa.nulls(1, image_column(images(2, 2), "").type)])
    with pytest.raises(DataError, match="an image in every row of column 'image', got none in 1 rows"):
        prepared(pa.table({"image": column}))
    with pytest.raises(DataError, match="text or numbers in column 'image'"):
        prepared(images(2, 2), features=FeaturesConfig(categorical=("image",)))


class TestNpz:
    def write(self, folder: Path, **arrays: Any) -> Path:
        path = folder / "digits.npz"
        np.savez_compressed(path, **arrays)
        return path

    def config(self, path: Path, arrays: Any, **options: Any) -> TableConfig:
        return validated(TableConfig, {"path": path, "arrays": arrays, **options}, "table")

    def test_arrays_are_joined_and_halved(self, tmp_path: Path) -> None:
        train, test = images(6, 4, 3), images(6, 4, 3, rows=5, seed=1)
        labels = np.arange(25) % 2
        path = self.write(tmp_path, x_train=train, x_test=test, y_train=labels[:ROWS], y_test=labels[ROWS:])
        both = np.concatenate([train, test])
        arrays = {"image": ["x_train", "x_test"], "digit": ["y_train", "y_test"]}
        left = prepared(self.config(path, arrays, part="left"), label="digit")
        np.testing.assert_allclose(
            left.store.gather(torch.arange(25))[1], standardised(both[:, :, :2]), rtol=1e-4, atol=1e-5
        )
        assert left.labels.values.tolist() == labels.tolist()
        top = prepared(self.config(path, {"picture": "x_train"}, part="top", format="npz"))
        np.testing.assert_allclose(top.store.gather(EVERY)[1], standardised(train[:, :3]), rtol=1e-4, atol=1e-5)

    def test_only_named_arrays_are_opened(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = self.write(tmp_path, x=images(4, 4), y=np.arange(ROWS) % 2, secret=np.array([{}], dtype=object))
        opened: list[str] = []
        get = np.lib.npyio.NpzFile.__getitem__
        monkeypatch.setattr(
            np.lib.npyio.NpzFile, "__getitem__", lambda archive, key: opened.append(key) or get(archive, key)
        )
        prepared(self.config(path, {"image": "x"}, part="right"))
        assert set(opened) == {"x"}
        opened.clear()
        arrays = {"image": "x", "digit": "y"}
        prepared(self.config(path, arrays), label="digit", features=FeaturesConfig(include="none"))
        assert set(opened) == {"y"}

    def test_labels_may_stand_in_one_column(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, y=np.arange(ROWS)[:, None] % 2)
        found = prepared(self.config(path, {"y": "y"}), label="y", features=FeaturesConfig(include="none"))
        assert found.labels.values.tolist() == [0, 1] * 10

    @pytest.mark.parametrize(
        ("arrays", "options", "message"),
        [
            ({"image": "xs"}, {}, "no array 'xs'; did you mean 'x'"),
            ({"image": "table"}, {}, r"array 'table' of shape .*, got \(20, 3\); a table of numbers belongs in a CSV"),
            ({"image": "x", "y": "short"}, {}, "columns of one length, got image 20, y 5"),
            ({"image": ["x", "odd"]}, {}, "arrays of one shape and type to join into 'image'"),
            (
                {"image": "odd"},
                {"part": "left"},
                "odd: expected images of even width for part left, got 5; crop or pad",
            ),
            ({"image": "odd"}, {"part": "bottom"}, "images of even height for part bottom, got 3"),
            ({"image": "pickled"}, {}, "arrays of numbers or text, got pickled objects; save numbers or text"),
            ({"image": "deep"}, {}, "images of shape|array 'deep' of shape"),
        ],
    )
    def test_what_a_user_gets_wrong(self, tmp_path: Path, arrays: Any, options: Any, message: str) -> None:
        path = self.write(
            tmp_path,
            x=images(4, 4),
            odd=images(3, 5),
            table=np.zeros((ROWS, 3)),
            short=np.arange(5),
            deep=np.zeros((2, 2, 2, 2, 2)),
            pickled=np.array([{"a": 1}] * ROWS, dtype=object),
        )
        with pytest.raises(DataError, match=f"party shop: .*digits.npz.*{message}"):
            PartyTable("shop", self.config(path, arrays, **options), "@row")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (pickle.dumps(np.zeros(3)), "an npz archive, got another kind of file"),
            (b"x,y\n1,2\n", "an npz archive, got another kind of file"),
        ],
    )
    def test_files_that_are_no_archive(self, tmp_path: Path, content: bytes, message: str) -> None:
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(DataError, match=message):
            PartyTable("shop", self.config(tmp_path / "a.npz", {"image": "x"}), "@row")

    def test_a_damaged_archive(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, x=images(40, 40))
        content = bytearray(path.read_bytes())
        content[2000:2100] = bytes(100)
        path.write_bytes(content)
        with pytest.raises(DataError, match="expected a readable npz archive, got"):
            PartyTable("shop", self.config(path, {"image": "x"}), "@row")

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            ({"path": "a.npz"}, "arrays of an npz file, such as .*, got none"),
            ("a.npz", "arrays of an npz file, such as .*, got none"),
            ({"path": "a.csv", "part": "left"}, "arrays and part with an npz file alone, got a.csv"),
            ({"path": "a.npz", "format": "csv", "arrays": {"x": "x"}}, "arrays and part with an npz file alone"),
            ({"path": "a.npz", "arrays": {"x": []}}, "table.arrays.x"),
            ({"path": "a.npz", "arrays": {"x": "x"}, "part": "middle"}, "table.part: expected 'all', 'left'"),
        ],
    )
    def test_a_section_that_is_wrong(self, raw: Any, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            validated(TableConfig, raw, "table")


class TestPartition:
    def test_halves_put_together_are_the_images(self) -> None:
        for raw in (images(6, 4), images(6, 4, 3)):
            for across, axis in (("width", 2), ("height", 1)):
                parts = halves(raw, across)
                np.testing.assert_array_equal(np.concatenate(list(parts.values()), axis=axis), raw)
        assert list(halves(raw)) == ["left", "right"]
        assert list(halves(raw, "height")) == ["top", "bottom"]
        assert part_of(raw, "all") is raw

    def test_what_has_no_halves(self) -> None:
        for array in (np.zeros((4, 4)), np.zeros(4)):
            with pytest.raises(DataError, match="expected images"):
                halves(array)


def test_a_spec_says_its_size() -> None:
    spec = ImageSpec(channels=3, height=4, width=2, dtype="uint8", mean=(0,) * 3, deviation=(1,) * 3)
    assert (spec.shape, spec.pixels) == ((3, 4, 2), 24)
    assert ColumnSpec((3,), 2, image=spec).inputs == Inputs((3,), 26, (3, 4, 2))
    assert ColumnSpec((3,), 2).inputs == Inputs((3,), 2)
