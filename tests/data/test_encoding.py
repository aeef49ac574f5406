from __future__ import annotations

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

from cutlayer.config import CategoriesConfig, FeaturesConfig, NumbersConfig
from cutlayer.data.categories import fnv1a
from cutlayer.data.encoded import ColumnSpec, Encoded, check_codes
from cutlayer.data.encoding import Encoder
from cutlayer.data.feature_columns import feature_names
from cutlayer.data.packed import packed
from cutlayer.errors import DataError
from tests.data.fitted import fitted

WHERE = "party bank"


def encoder_of(table: pa.Table, rows: np.ndarray | None = None, **settings: object) -> Encoder:
    return fitted(table, FeaturesConfig(**settings), WHERE, rows)  # type: ignore[arg-type]


def codes(train: list, new: list, categories: CategoriesConfig | None = None, kind: pa.DataType | None = None) -> list:
    settings = {"categorical": ("c",), "categories": categories or CategoriesConfig()}
    encoder = encoder_of(pa.table({"c": pa.array(train, kind)}), **settings)
    return encoder.transform(pa.table({"c": pa.array(new, kind)}), WHERE).codes[:, 0].tolist()


def numbers(train: list, new: list, **settings: object) -> list:
    encoder = encoder_of(pa.table({"n": pa.array(train)}), numbers=NumbersConfig(**settings))  # type: ignore[arg-type]
    return encoder.transform(pa.table({"n": pa.array(new)}), WHERE).numbers[:, 0].tolist()


def test_missing_unknown_and_training_values() -> None:
    assert codes(["b", "a", None, "b"], ["a", "b", None, "z", ""]) == [2, 3, 0, 1, 1]


def test_rare_values_are_unknown() -> None:
    assert codes(["a", "b", "b", "c", "c"], ["a", "b", "c"], CategoriesConfig(min_count=2)) == [1, 2, 3]


def test_a_column_without_any_training_value() -> None:
    assert codes([None, None], ["a", None], kind=pa.string()) == [1, 0]


@pytest.mark.parametrize(
    ("train", "kind"),
    [
        ([2, 1, None, 10], pa.int64()),
        ([2.0, 1.0, float("nan"), 10.0], pa.float64()),
        ([decimal.Decimal("2"), decimal.Decimal("1"), None, decimal.Decimal("10")], pa.decimal128(5, 0)),
        (["2", "1", None, "10"], pa.large_string()),
    ],
)
def test_integers_named_categorical_are_the_same_categories_whatever_their_type(train: list, kind: pa.DataType) -> None:
    assert codes(train, train, kind=kind) == [4, 2, 0, 3]


def test_text_booleans_and_dictionaries_are_categories_and_the_rest_numbers() -> None:
    day = datetime.date(1970, 1, 3)
    table = pa.table(
        {
            "text": ["a", "b"],
            "flag": [True, None],
            "coded": pa.array([7, 8]).dictionary_encode(),
            "whole": pa.array([1, 2], pa.uint8()),
            "price": [decimal.Decimal("1.50"), None],
            "day": [day, None],
            "moment": pa.array([datetime.datetime(1970, 1, 2, 12), None], pa.timestamp("ns", tz="UTC")),
            "span": [datetime.timedelta(hours=12), None],
            "nothing": pa.nulls(2),
        }
    )
    encoder = encoder_of(table, numbers=NumbersConfig(scale="none", missing="zero"))
    assert encoder.columns == ColumnSpec(
        cardinalities=(4, 3, 4),
        numeric=6,
        category_names=("text", "flag", "coded"),
        number_names=("whole", "price", "day", "moment", "span", "nothing"),
    )
    encoded = encoder.transform(table, WHERE)
    assert encoded.codes.tolist() == [[2, 2, 2], [3, 0, 3]]
    assert encoded.numbers.tolist() == [[1, 1.5, 2, 1.5, 0.5, 0], [2, 0, 0, 0, 0, 0]]
    assert encoded.codes.dtype == np.int32
    assert encoded.numbers.dtype == np.float32
    assert encoded.codes.flags.c_contiguous
    assert encoded.numbers.flags.c_contiguous


@pytest.mark.parametrize("column", [pa.array([[1], [2]]), pa.array([b"a", b"b"]), pa.array([datetime.time(1)] * 2)])
def test_types_that_are_no_feature(column: pa.Array) -> None:
    with pytest.raises(DataError, match=r"column 'c', got .*; turn it into numbers or text"):
        encoder_of(pa.table({"c": column}))


def test_lists_cannot_be_named_categorical() -> None:
    with pytest.raises(DataError, match="expected text or numbers in column 'c', got list"):
        encoder_of(pa.table({"c": pa.array([[1], [2]])}), categorical=("c",))


def test_a_wide_column_is_hashed() -> None:
    wide = CategoriesConfig(max_codes=6)
    values = ["a", "b", "c", "d", "e", None]
    hashed = codes(values, [*values, "new"], wide)
    words = fnv1a(pa.array(["a", "b", "c", "d", "e", "new"], pa.large_string()))
    wanted = (words % 4 + 2).tolist()
    assert hashed == [*wanted[:5], 0, wanted[5]]
    assert codes(values[:4], ["a", "new"], wide) == [2, 1], "as wide as allowed is not hashed"


@settings(deadline=None)
@given(st.lists(st.none() | st.text(max_size=12), max_size=30), st.integers(0, 5))
def test_the_hash_is_fnv1a(values: list[str | None], cut: int) -> None:
    text = pa.array(values, pa.large_string())[cut:]
    wanted = []
    for value in text.to_pylist():
        word = 0xCBF29CE484222325
        for byte in (value or "").encode():
            word = (word ^ byte) * 0x100000001B3 % 2**64
        wanted.append(word)
    assert fnv1a(text).tolist() == wanted


columns = st.lists(st.floats(-1e6, 1e6) | st.none(), min_size=2, max_size=30).filter(
    lambda column: len({value for value in column if value is not None}) > 1
)


@settings(deadline=None)
@given(columns, columns)
def test_standard_and_minmax_are_those_of_scikit_learn(train: list, new: list) -> None:
    def frame(column: list) -> np.ndarray:
        return np.array([np.nan if value is None else value for value in column]).reshape(-1, 1)

    for fill, strategy in (("mean", "mean"), ("median", "median"), ("zero", "constant")):
        imputer = SimpleImputer(strategy=strategy, fill_value=0.0).fit(frame(train))
        filled, wanted = imputer.transform(frame(train)), imputer.transform(frame(new))
        if np.ptp(filled) < 1e-3:
            continue
        standard = StandardScaler().fit(filled).transform(wanted)[:, 0]
        np.testing.assert_allclose(numbers(train, new, missing=fill), standard, rtol=1e-4, atol=1e-4)
        minmax = MinMaxScaler(clip=True).fit(filled).transform(wanted)[:, 0]
        np.testing.assert_allclose(numbers(train, new, missing=fill, scale="minmax"), minmax, rtol=1e-4, atol=1e-4)


@settings(deadline=None)
@given(columns, columns)
def test_robust_is_the_smooth_clip_of_scikit_learns_quartiles(train: list, new: list) -> None:
    present = np.array([value for value in train if value is not None]).reshape(-1, 1)
    scaler = RobustScaler().fit(present)
    if np.subtract(*np.quantile(present, [0.75, 0.25])) < 1e-3:
        return
    known = np.array([value for value in new if value is not None])
    z = scaler.transform(known.reshape(-1, 1))[:, 0]
    got = numbers(present[:, 0].tolist(), known.tolist(), scale="robust")
    np.testing.assert_allclose(got, z / np.sqrt(1 + (z / 3) ** 2), rtol=1e-5, atol=1e-5)


def test_robust_stays_between_its_ends_and_spreads_a_column_that_is_mostly_zero() -> None:
    mostly_zero = [0.0] * 9 + [10.0]  # the quartiles are equal: mean 1, standard deviation 3
    got = numbers(mostly_zero, [-1e140, -3.0, 0.0, 3.0, 9.0, 1e140], scale="robust")
    np.testing.assert_allclose(got, [-3, -(0.9**0.5), 0, 0.9**0.5, 3 / 2**0.5, 3], rtol=1e-6)
    assert numbers([2.0, 2.0], [2.0, 5.0], scale="robust") == [0, 0]


def test_log1p_keeps_the_sign() -> None:
    got = numbers([0.0, 1.0], [-3.0, 0.0, 3.0, None], transform="log1p", scale="none", missing="median")
    np.testing.assert_allclose(got, [-np.log(4), 0, np.log(4), np.log(2) / 2], rtol=1e-6)


def test_constant_and_empty_columns_become_zero() -> None:
    assert numbers([0.1, 0.1, 0.1], [0.1, 5.0, None]) == [0, 0, 0]
    assert numbers([None, None, None], [None, 5.0]) == [0, 0]
    assert numbers([3, 3], [3, 4], scale="none") == [3, 4]


def test_minmax_is_clipped_to_the_training_range() -> None:
    assert numbers([0, 10], [-5, 5, 20], scale="minmax") == [0, 0.5, 1]


@pytest.mark.parametrize("row", [1, 2])
def test_infinity_names_column_and_row(row: int) -> None:
    values = [1.0, 2.0, 3.0]
    values[row] = float("-inf")
    table = pa.table({"ok": [1, 2, 3], "income": values})
    with pytest.raises(DataError, match=f"finite numbers in column 'income', got infinity in row {row}"):
        encoder_of(table, rows=np.array([2, 1]))
    clean = pa.table({"ok": [1, 2, 3], "income": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match=f"column 'income', got infinity in row {row}"):
        encoder_of(clean).transform(table.take([0, 2, 1]), WHERE, np.array([0, 2, 1]))


def test_missing_values_are_refused_where_the_job_says_so() -> None:
    table = pa.table({"n": [1.0, None, float("nan")], "c": ["a", None, "b"]})
    strict = encoder_of(table, numbers=NumbersConfig(missing="error"))
    with pytest.raises(DataError, match="column 'n', got none in 2 rows, the first is row 1"):
        strict.transform(table, WHERE)
    strict = encoder_of(table, categories=CategoriesConfig(missing="error"))
    with pytest.raises(DataError, match="column 'c', got none in 1 rows, the first is row 1"):
        strict.transform(table.take([2, 1]), WHERE, np.array([2, 1]))


def test_numbers_too_large() -> None:
    with pytest.raises(DataError, match="numbers below 1e150"):
        encoder_of(pa.table({"n": [1e200, -1e200, 3e200]}))
    with pytest.raises(DataError, match="within float32"):
        numbers([1.0, 2.0], [1e60], scale="none")


def test_text_in_a_column_that_was_numeric() -> None:
    encoder = encoder_of(pa.table({"n": [1, 2]}))
    assert encoder.transform(pa.table({"n": ["1", None]}), WHERE).numbers.tolist() == [[-1], [0]]
    with pytest.raises(DataError, match="numbers in column 'n', got 'many' in row 1"):
        encoder.transform(pa.table({"n": ["1", "many"]}), WHERE)
    with pytest.raises(DataError, match="the column 'n' of the fitted encoder"):
        encoder.transform(pa.table({"m": [1]}), WHERE)


def test_names_of_features() -> None:
    known = ["id", "", "a", "b2", "b3", "y", "__index_level_0__"]
    reserved = ("id", "y")

    def names(**settings: object) -> tuple[str, ...]:
        return feature_names(known, FeaturesConfig(**settings), WHERE, reserved)  # type: ignore[arg-type]

    assert names() == ("a", "b2", "b3")
    assert names(include=("b2..b3", "a")) == ("a", "b2", "b3")
    assert names(exclude=("b2..b3",)) == ("a",)
    assert names(include="none") == names(include=()) == ()
    for wrong in ({"include": ("aa",)}, {"exclude": ("aa",)}, {"categorical": ("aa",)}):
        with pytest.raises(DataError, match="no column 'aa'; did you mean 'a'"):
            names(**wrong)
    with pytest.raises(DataError, match="apart from id and label, got 'y'"):
        names(include=("a", "y"))
    with pytest.raises(DataError, match="a feature column, got none"):
        names(include=("a",), exclude=("a",))


def mixed(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    cities = rng.choice(["Ulm", "Bonn", "Köln", "7"], rows).tolist()
    wide = [f"user-{number}" for number in rng.integers(0, 50, rows)]
    ages = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(40, 10, rows))
    return pa.table({"city": cities, "wide": wide, "age": ages, "count": rng.integers(0, 9, rows)})


SETTINGS = {"categories": CategoriesConfig(max_codes=20), "numbers": NumbersConfig(scale="minmax", missing="median")}


def test_only_training_rows_are_looked_at() -> None:
    """Change every row that does not train, beyond recognition: nothing about the encoder may change."""
    table = mixed(300, 0)
    training = np.arange(0, 300, 2)
    other = pa.table(
        {
            "city": [f"{city}!" if row % 2 else city for row, city in enumerate(table["city"].to_pylist())],
            "wide": [f"{name}!" if row % 2 else name for row, name in enumerate(table["wide"].to_pylist())],
            "age": [1e9 if row % 2 else age for row, age in enumerate(table["age"].to_pylist())],
            "count": [None if row % 2 else count for row, count in enumerate(table["count"].to_pylist())],
        }
    )
    fitted, changed = (encoder_of(each, training, **SETTINGS) for each in (table, other))
    assert fitted.to_json() == changed.to_json()
    assert fitted.to_json() != encoder_of(other, **SETTINGS).to_json()
    before, after = (fitted.transform(each.take(training), WHERE) for each in (table, other))
    np.testing.assert_array_equal(before.codes, after.codes)
    np.testing.assert_array_equal(before.numbers, after.numbers)
    assert (fitted.transform(other, WHERE).codes[1::2, 0] == 1).all()


def test_fitting_does_not_depend_on_the_order_of_rows() -> None:
    table = mixed(200, 1)
    shuffled = np.random.default_rng(0).permutation(200)
    one, other = encoder_of(table), encoder_of(table, shuffled)
    assert one.categories == other.categories
    for first, second in zip(one.numbers, other.numbers, strict=True):
        assert first.offset == pytest.approx(second.offset)


def test_json_keeps_everything() -> None:
    table = mixed(300, 2)
    encoder = encoder_of(table, **SETTINGS)
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    before, after = encoder.transform(table, WHERE), again.transform(table, WHERE)
    np.testing.assert_array_equal(before.codes, after.codes)
    np.testing.assert_array_equal(before.numbers, after.numbers)


@pytest.mark.parametrize("spoil", ["", "{}", "[1]", '{"format": "other", "encoders": []}', "truncated"])
def test_a_damaged_encoder(spoil: str) -> None:
    text = encoder_of(mixed(20, 3)).to_json()[:-20] if spoil == "truncated" else spoil
    with pytest.raises(DataError, match="a saved encoder"):
        Encoder.from_json(text)


def test_chunks_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.data.encoding.CHUNK_ROWS", 32)
    table = mixed(100, 4)
    encoder = encoder_of(table)
    rows = np.random.default_rng(1).permutation(100)[:70]
    whole = encoder.transform(table.take(rows), WHERE)
    columns = packed(lambda names, _: iter([table.select(names)]), encoder.kinds, WHERE, 100, 10_000)
    common = {name: column.gathered(rows) for name, column in columns.items()}
    parts = list(encoder.chunks(common, WHERE, rows))
    assert [len(part) for part in parts] == [32, 32, 6]
    np.testing.assert_array_equal(np.concatenate([part.codes for part in parts]), whole.codes)
    np.testing.assert_array_equal(np.concatenate([part.numbers for part in parts]), whole.numbers)


def test_codes_out_of_range_are_refused() -> None:
    spec = ColumnSpec((3, 4), 0, ("a", "b"))
    nothing = np.empty((2, 0), np.float32)
    check_codes(Encoded(np.array([[2, 3], [0, 0]], np.int32), nothing), spec, WHERE)
    for wrong in (4, -1):
        with pytest.raises(DataError, match=r"codes of column 'b' in 0\.\.3"):
            check_codes(Encoded(np.array([[2, wrong], [0, 0]], np.int32), nothing), spec, WHERE)
    with pytest.raises(DataError, match="of shape"):
        check_codes(Encoded(np.zeros((2, 3), np.int32), nothing), spec, WHERE)
    edited = json.loads(encoder_of(pa.table({"c": ["a", "b", "c"]})).to_json())
    edited["encoders"][0]["cardinality"] = 3
    with pytest.raises(DataError, match=r"codes of column 'c' in 0\.\.2, got 2\.\.4"):
        Encoder.from_json(json.dumps(edited)).transform(pa.table({"c": ["a", "b", "c"]}), WHERE)


def test_a_frame_with_an_index_and_pandas_missing_values() -> None:
    frame = pd.DataFrame({"n": [1.0, None, 3.0], "c": ["a", None, "b"], "k": pd.array([1, None, 3], dtype="Int64")})
    frame.index = [5, 7, 9]
    encoder = encoder_of(pa.table(frame))
    assert encoder.names == ("n", "c", "k")
    encoded = encoder.transform(pa.table(frame), WHERE)
    assert encoded.codes[:, 0].tolist() == [2, 0, 3]
    assert encoded.numbers[1].tolist() == [0, 0]
