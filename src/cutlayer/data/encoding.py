"""A party's encoder: fitted on training rows or stated, then frozen; tables in, codes, numbers and images out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, ValidationError

from cutlayer.config import FeaturesConfig, FrozenModel
from cutlayer.config.table import Infinite
from cutlayer.data.categories import FIRST, MISSING, CategoryEncoder, are_rare
from cutlayer.data.columns import ColumnKind, category_text, feature_names, is_coded_text, kind_of, number_values
from cutlayer.data.encoded import CHUNK_ROWS, ColumnSpec, Encoded, check_codes
from cutlayer.data.faults import fault
from cutlayer.data.images import ImageEncoder, images_of
from cutlayer.data.numbers import NumberEncoder
from cutlayer.data.quantiles import QuantileEncoder
from cutlayer.errors import DataError

Rows = npt.NDArray[np.int64]
FittedColumn = CategoryEncoder | NumberEncoder | QuantileEncoder | ImageEncoder


class Encoder(FrozenModel):
    """The fitted encoders of all of a party's feature columns, frozen.

    Attributes:
        encoders: One for each column of the matrices that they make.
        has_rare_categories: Whether most categories of some column are too rare to learn from.
    """

    format: Literal["cutlayer-encoder-1"] = "cutlayer-encoder-1"
    encoders: tuple[Annotated[FittedColumn, Field(discriminator="kind")], ...]
    has_rare_categories: bool = False

    @classmethod
    def fit(cls, table: pa.Table, features: FeaturesConfig, where: str, rows: Rows | None = None) -> Encoder:
        """Fit one encoder per feature column, and another for the quantiles of a number where these are asked for.

        An encoder with a stated range or vocabulary sees no row.

        Args:
            table: Holds the feature columns; id and label must not be among them.
            features: Columns that are features, and their encoding.
            where: Name of the table, for messages.
            rows: int64 (n,), the training rows of the table, the only ones that are looked at; all if None.

        Raises:
            DataError: A column is absent, of a type that is no feature, or holds infinity; a range is stated for a
                column that is not numeric; or two columns hold images.
        """
        names = feature_names(table.column_names, features, where)
        fitted = tuple(encoder for name in names for encoder in _fitted(table, name, features, where, rows))
        images = [encoder.name for encoder in fitted if isinstance(encoder, ImageEncoder)]
        if len(images) > 1:
            raise fault(where, "one image column", ", ".join(images), "leave the rest out with features.exclude")
        return cls.fitted(fitted, table.num_rows if rows is None else len(rows))

    @classmethod
    def fitted(cls, encoders: Sequence[FittedColumn], rows: int) -> Encoder:
        """The encoder of fitted columns.

        Args:
            encoders: One for each column.
            rows: Number of rows that they were fitted on.
        """
        counts = (encoder.cardinality - FIRST for encoder in encoders if isinstance(encoder, CategoryEncoder))
        return cls(encoders=tuple(encoders), has_rare_categories=any(are_rare(count, rows) for count in counts))

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "encoder") -> Encoder:
        """Read the text that `to_json` wrote.

        Raises:
            DataError: Damaged, or of another format.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as failure:
            got = f"{failure.error_count()} faults in it"
            raise fault(where, "a saved encoder (cutlayer-encoder-1)", got, "fit it again") from None

    def to_json(self) -> str:
        """The fitted encoders as JSON. It holds values of the training rows, so it stays with its party."""
        return self.model_dump_json()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all feature columns."""
        return tuple(dict.fromkeys(encoder.name for encoder in self.encoders))

    @property
    def categories(self) -> tuple[CategoryEncoder | QuantileEncoder, ...]:
        """Encoders of the columns of `Encoded.codes`."""
        return tuple(encoder for encoder in self.encoders if isinstance(encoder, CategoryEncoder | QuantileEncoder))

    @property
    def numbers(self) -> tuple[NumberEncoder, ...]:
        """Encoders of the columns of `Encoded.numbers`."""
        return tuple(encoder for encoder in self.encoders if isinstance(encoder, NumberEncoder))

    @property
    def image(self) -> ImageEncoder | None:
        """Encoder of `Encoded.images`."""
        return next((encoder for encoder in self.encoders if isinstance(encoder, ImageEncoder)), None)

    @property
    def columns(self) -> ColumnSpec:
        """The shape of the result of `transform`."""
        return ColumnSpec(
            cardinalities=tuple(encoder.cardinality for encoder in self.categories),
            numeric=len(self.numbers),
            category_names=tuple(encoder.title for encoder in self.categories),
            number_names=tuple(encoder.name for encoder in self.numbers),
            image=self.image.spec if self.image else None,
            has_rare_categories=self.has_rare_categories,
        )

    def transform(self, table: pa.Table, where: str, rows: Rows | None = None) -> Encoded:
        """Encode rows of a table, one column after the other.

        Args:
            table: Holds the columns the encoder was fitted on; further ones are ignored.
            where: Name of the table, for messages.
            rows: int64 (n,), which rows, in this order; all if None.

        Raises:
            DataError: A column is absent or no longer numeric, holds infinity, or misses values where that is refused;
                or images are of another shape.
        """
        for name in self.names:
            if name not in table.column_names:
                raise fault(where, f"the column {name!r} of the fitted encoder", "a table without it")
        n = table.num_rows if rows is None else len(rows)
        codes = np.empty((n, len(self.categories)), dtype=np.int32)
        numbers = np.empty((n, len(self.numbers)), dtype=np.float32)
        for index, category in enumerate(self.categories):
            codes[:, index] = _coded(category, _taken(table, category.name, rows), where, rows)
        for index, number in enumerate(self.numbers):
            numbers[:, index] = _scaled(number, _taken(table, number.name, rows), where, rows)
        images = None
        if self.image:
            pixels = images_of(table.column(self.image.name), self.image.name, where)
            images = self.image.apply(pixels, rows, where)
        encoded = Encoded(codes, numbers, images)
        check_codes(encoded, self.columns, where)
        return encoded

    def chunks(self, table: pa.Table, where: str, rows: Rows, size: int = CHUNK_ROWS) -> Iterator[Encoded]:
        """Encode `rows` as `transform` does, at most `size` of them at a time."""
        for start in range(0, len(rows), size):
            yield self.transform(table, where, rows[start : start + size])


def _fitted(
    table: pa.Table, name: str, features: FeaturesConfig, where: str, rows: Rows | None
) -> Iterator[FittedColumn]:
    """The encoders of a column: two for a number with quantiles, else one."""
    kind = chosen_kind(name, table.schema.field(name).type, features, where)
    known = stated(name, kind, features, where)
    if known is not None:
        yield from known
        return
    if kind == "category":
        text = category_text(_taken(table, name, rows), name, where)
        yield CategoryEncoder.fit(name, text, features.categories)
    elif kind == "image":
        yield ImageEncoder.fit(name, images_of(table.column(name), name, where), rows)
    else:
        yield from _fitted_number(table, name, features, where, rows)


def chosen_kind(name: str, kind: pa.DataType, features: FeaturesConfig, where: str) -> ColumnKind:
    """The kind of a column of this type: a category if the user says so, else as `kind_of`.

    Raises:
        DataError: An error of `kind_of`.
    """
    if name in features.categorical or name in features.vocabulary:
        return "category"
    return kind_of(name, kind, where)


def stated(name: str, kind: ColumnKind, features: FeaturesConfig, where: str) -> tuple[FittedColumn, ...] | None:
    """The encoders of a column with a public range or vocabulary; `None` if it has to be fitted.

    Raises:
        DataError: A range for a column that is not numeric.
    """
    if name in features.vocabulary:
        return (CategoryEncoder.stated(name, features.vocabulary[name], features.categories),)
    if name not in features.ranges:
        return None
    if kind != "number":
        raise fault(where, f"a range for numbers, in column {name!r}", kind, "state a vocabulary, or neither")
    number = NumberEncoder.stated(name, features.ranges[name], features.numbers)
    if not features.numbers.quantiles:
        return (number,)
    numbers = features.numbers
    return number, QuantileEncoder.stated(name, features.ranges[name], numbers.quantiles, numbers.infinite)


def _fitted_number(
    table: pa.Table, name: str, features: FeaturesConfig, where: str, rows: Rows | None
) -> Iterator[NumberEncoder | QuantileEncoder]:
    numbers = features.numbers
    column = _taken(table, name, rows)
    values = finite(number_values(column, name, where), name, where, rows, numbers.infinite)
    yield NumberEncoder.fit(name, values, numbers, where)
    if numbers.quantiles:
        yield QuantileEncoder.fit(name, values, numbers.quantiles, numbers.infinite)


def _taken(table: pa.Table, name: str, rows: Rows | None) -> pa.ChunkedArray:
    column = table.column(name)
    return column if rows is None else column.take(pa.array(rows))


def _coded(
    category: CategoryEncoder | QuantileEncoder, column: pa.ChunkedArray, where: str, rows: Rows | None
) -> npt.NDArray[np.int32]:
    if isinstance(category, QuantileEncoder):
        values = number_values(column, category.name, where)
        return category.apply(finite(values, category.name, where, rows, category.infinite))
    if is_coded_text(column.type):
        codes = category.apply_coded(column)
    else:
        codes = category.apply(category_text(column, category.name, where))
    if category.missing == "error" and (codes == MISSING).any():
        raise _missing(category.name, codes == MISSING, where, rows, "categories.missing: code")
    return codes


def _scaled(number: NumberEncoder, column: pa.ChunkedArray, where: str, rows: Rows | None) -> npt.NDArray[np.float32]:
    values = finite(number_values(column, number.name, where), number.name, where, rows, number.infinite)
    absent = np.isnan(values)
    if number.missing == "error" and absent.any():
        raise _missing(number.name, absent, where, rows, "numbers.missing: mean")
    scaled = number.apply(values)
    if not np.isfinite(scaled).all():
        raise fault(where, f"numbers of column {number.name!r} within float32 after scaling", "larger ones")
    return scaled


def finite(
    values: npt.NDArray[np.float64],
    name: str,
    where: str,
    rows: Rows | None,
    infinite_are: Infinite = "error",
) -> npt.NDArray[np.float64]:
    """The numbers of a column, infinite ones as missing where that is asked for.

    Raises:
        DataError: One is infinite, and may not be.
    """
    infinite = np.isinf(values)
    if infinite_are == "missing":
        return np.where(infinite, np.nan, values)
    if infinite.any():
        remedy = "replace it, set numbers.infinite: missing, or name the column in features.categorical if it has codes"
        raise fault(where, f"finite numbers in column {name!r}", f"infinity in {_first(infinite, rows)}", remedy)
    return values


def _missing(name: str, absent: npt.NDArray[np.bool_], where: str, rows: Rows | None, remedy: str) -> DataError:
    got = f"none in {int(absent.sum())} rows, the first is {_first(absent, rows)}"
    return fault(where, f"a value in every row of column {name!r}", got, f"fill it, or set {remedy}")


def _first(mask: npt.NDArray[np.bool_], rows: Rows | None) -> str:
    found = np.flatnonzero(mask)
    return f"row {int(found[0] if rows is None else rows[found].min())} (counted from 0)"
