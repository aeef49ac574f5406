"""A party's encoder: fitted on training rows or stated, then frozen; tables in, codes, numbers and images out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, ValidationError

from cutlayer.config import FeaturesConfig, FrozenModel
from cutlayer.config.table import Infinite
from cutlayer.data.arrivals import Arrivals, type_word
from cutlayer.data.categories import FIRST_VALUE_CODE, MISSING_CODE, CategoryEncoder, are_categories_rare
from cutlayer.data.encoded import CHUNK_ROWS, ColumnSpec, Encoded, check_codes
from cutlayer.data.faults import fault
from cutlayer.data.feature_columns import ColumnKind, category_text, column_kind, is_coded_text, number_values
from cutlayer.data.images import ImageEncoder, images_of
from cutlayer.data.numbers import NumberEncoder
from cutlayer.data.packed import Column, PackedCategories, PackedImages, PackedNumbers, PackedText
from cutlayer.data.quantiles import QuantileEncoder
from cutlayer.errors import DataError
from cutlayer.storage.row_arrays import computed_rows

RowNumbers = npt.NDArray[np.int64]
FittedColumn = CategoryEncoder | NumberEncoder | QuantileEncoder | ImageEncoder


class Encoder(FrozenModel):
    """The fitted encoders of all of a party's feature columns, frozen.

    Attributes:
        encoders: One for each column of the matrices that they make.
        has_rare_categories: Whether most categories of some column are too rare to learn from.
        types: What each column held, as `type_word`, by name; empty where no schema was given.
    """

    format: Literal["cutlayer-encoder-1"] = "cutlayer-encoder-1"
    encoders: tuple[Annotated[FittedColumn, Field(discriminator="kind")], ...]
    has_rare_categories: bool = False
    types: Mapping[str, str] = Field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        columns: Mapping[str, Column],
        kinds: Mapping[str, ColumnKind],
        features: FeaturesConfig,
        where: str,
        training: RowNumbers,
        numbers: RowNumbers | None = None,
        schema: pa.Schema | None = None,
    ) -> Encoder:
        """Fit one encoder per feature column, and another for the quantiles of a number where these are asked for.

        An encoder with a stated range or vocabulary sees no row.

        Args:
            columns: The feature columns (n), by name.
            kinds: Kind of each.
            features: Their encoding.
            where: Name of the table, for messages.
            training: int64 (t,), the training rows, the only ones that are looked at.
            numbers: Numbers of the rows for messages, int64 (n,); those of `columns` if None.
            schema: Types of the columns in the table.

        Raises:
            DataError: A column holds infinity; a range is stated for a column that is not numeric; or two columns hold
                images.
        """
        shown = training if numbers is None else numbers[training]
        fitted = tuple(
            encoder
            for name in kinds
            for encoder in _fit_column(columns[name], name, kinds[name], features, where, training, shown)
        )
        images = [encoder.name for encoder in fitted if isinstance(encoder, ImageEncoder)]
        if len(images) > 1:
            raise fault(where, "one image column", ", ".join(images), "leave the rest out with features.exclude")
        counts = (encoder.cardinality - FIRST_VALUE_CODE for encoder in fitted if isinstance(encoder, CategoryEncoder))
        types = {name: type_word(schema.field(name).type) for name in kinds} if schema is not None else {}
        rare = any(are_categories_rare(count, len(training)) for count in counts)
        return cls(encoders=fitted, has_rare_categories=rare, types=types)

    @property
    def kinds(self) -> dict[str, ColumnKind]:
        """Kind of each feature column, by name."""
        return {encoder.name: encoder.kind for encoder in self.encoders if not isinstance(encoder, QuantileEncoder)}

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
    def value_columns(self) -> tuple[str, ...]:
        """Columns whose values rows are joined by: all but images."""
        return tuple(dict.fromkeys(each.name for each in (*self.categories, *self.numbers)))

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

    def transform(
        self, table: pa.Table, where: str, rows: RowNumbers | None = None, arrivals: Arrivals | None = None
    ) -> Encoded:
        """Encode all rows of a table, one column after the other.

        Args:
            table: Holds the columns the encoder was fitted on; further ones are ignored.
            where: Name of the table, for messages.
            rows: Numbers of the rows for messages, int64 (n,); their places in the table if None.
            arrivals: Counts what these rows have in common with the training.

        Raises:
            DataError: A column is absent or no longer numeric, holds infinity, or misses values where that is refused;
                or images are of another shape.
        """
        for name in self.names:
            if name not in table.column_names:
                raise fault(where, f"the column {name!r} of the fitted encoder", "a table without it")
        codes = np.empty((table.num_rows, len(self.categories)), dtype=np.int32)
        numbers = np.empty((table.num_rows, len(self.numbers)), dtype=np.float32)
        for index, category in enumerate(self.categories):
            codes[:, index] = _category_codes(category, table.column(category.name), where, rows)
            if arrivals is not None:
                arrivals.add_codes(category, codes[:, index])
        for index, number in enumerate(self.numbers):
            numbers[:, index] = _scaled_numbers(number, table.column(number.name), where, rows, arrivals)
        images = None
        if self.image:
            images = self.image.apply(images_of(table.column(self.image.name), self.image.name, where), where)
        encoded = Encoded(codes, numbers, images)
        check_codes(encoded, self.columns, where)
        return encoded

    def chunks(
        self, columns: Mapping[str, Column], where: str, rows: RowNumbers, arrivals: Arrivals | None = None
    ) -> Iterator[Encoded]:
        """Encode packed columns (n) as `transform` does, at most `CHUNK_ROWS` rows at a time.

        Args:
            columns: The columns, by name.
            where: Name of the table, for messages.
            rows: Numbers of the rows for messages, int64 (n,).
            arrivals: As in `transform`.
        """
        for start in range(0, len(rows), CHUNK_ROWS):
            part = slice(start, min(start + CHUNK_ROWS, len(rows)))
            table = pa.table({name: column.piece(part) for name, column in columns.items()})
            yield self.transform(table, where, rows[part], arrivals)


def _fit_column(
    column: Column,
    name: str,
    kind: ColumnKind,
    features: FeaturesConfig,
    where: str,
    training: RowNumbers,
    shown: RowNumbers,
) -> Iterator[FittedColumn]:
    """The encoders of a column: two for a number with quantiles, else one."""
    known = public_encoders(name, kind, features, where)
    if known is not None:
        yield from known
    elif isinstance(column, PackedNumbers):
        config = features.numbers

        def values() -> npt.NDArray[np.float64]:
            return computed_rows(
                len(training),
                np.float64,
                lambda part: finite_numbers(column.values[training[part]], name, where, shown[part], config.infinite),
            )

        yield NumberEncoder.fit(name, values(), config, where)
        if config.quantiles:
            yield QuantileEncoder.fit(name, values(), config.quantiles, config.infinite)
    elif isinstance(column, PackedImages):
        yield ImageEncoder.fit(name, column.pixels, training)
    elif isinstance(column, PackedCategories | PackedText):
        categories = features.categories
        frequent = column.frequent_values(training, categories.min_count, categories.max_codes - FIRST_VALUE_CODE)
        yield CategoryEncoder.from_training(name, frequent, categories)


def chosen_kind(name: str, kind: pa.DataType, features: FeaturesConfig, where: str) -> ColumnKind:
    """The kind of a column of this type: a category if the user says so, else as `column_kind`.

    Raises:
        DataError: An error of `column_kind`.
    """
    if name in features.categorical or name in features.vocabulary:
        return "category"
    return column_kind(name, kind, where)


def public_encoders(
    name: str, kind: ColumnKind, features: FeaturesConfig, where: str
) -> tuple[FittedColumn, ...] | None:
    """The encoders of a column with a public range or vocabulary; `None` if it has to be fitted.

    Raises:
        DataError: A range for a column that is not numeric.
    """
    if name in features.vocabulary:
        return (CategoryEncoder.from_vocabulary(name, features.vocabulary[name], features.categories),)
    if name not in features.ranges:
        return None
    if kind != "number":
        raise fault(where, f"a range for numbers, in column {name!r}", kind, "state a vocabulary, or neither")
    number = NumberEncoder.from_range(name, features.ranges[name], features.numbers)
    if not features.numbers.quantiles:
        return (number,)
    numbers = features.numbers
    return number, QuantileEncoder.from_range(name, features.ranges[name], numbers.quantiles, numbers.infinite)


def _category_codes(
    category: CategoryEncoder | QuantileEncoder, column: pa.ChunkedArray, where: str, rows: RowNumbers | None
) -> npt.NDArray[np.int32]:
    if isinstance(category, QuantileEncoder):
        values = number_values(column, category.name, where)
        return category.apply(finite_numbers(values, category.name, where, rows, category.infinite))
    if is_coded_text(column.type):
        codes = category.apply_coded(column)
    else:
        codes = category.apply(category_text(column, category.name, where))
    if category.missing == "error" and (codes == MISSING_CODE).any():
        raise _no_value(category.name, codes == MISSING_CODE, where, rows, "categories.missing: code")
    return codes


def _scaled_numbers(
    number: NumberEncoder, column: pa.ChunkedArray, where: str, rows: RowNumbers | None, arrivals: Arrivals | None
) -> npt.NDArray[np.float32]:
    values = finite_numbers(number_values(column, number.name, where), number.name, where, rows, number.infinite)
    if arrivals is not None:
        arrivals.add_numbers(number, values)
    absent = np.isnan(values)
    if number.missing == "error" and absent.any():
        raise _no_value(number.name, absent, where, rows, "numbers.missing: mean")
    scaled = number.apply(values)
    if not np.isfinite(scaled).all():
        raise fault(where, f"numbers of column {number.name!r} within float32 after scaling", "larger ones")
    return scaled


def finite_numbers(
    values: npt.NDArray[np.float64], name: str, where: str, rows: RowNumbers | None, infinite_policy: Infinite = "error"
) -> npt.NDArray[np.float64]:
    """The numbers of a column, infinite ones as missing where that is asked for.

    Raises:
        DataError: One is infinite, and may not be.
    """
    infinite = np.isinf(values)
    if infinite_policy == "missing":
        return np.where(infinite, np.nan, values)
    if infinite.any():
        remedy = "replace it, set numbers.infinite: missing, or name the column in features.categorical if it has codes"
        raise fault(where, f"finite numbers in column {name!r}", f"infinity in {_first_row(infinite, rows)}", remedy)
    return values


def _no_value(name: str, absent: npt.NDArray[np.bool_], where: str, rows: RowNumbers | None, remedy: str) -> DataError:
    got = f"none in {int(absent.sum())} rows, the first is {_first_row(absent, rows)}"
    return fault(where, f"a value in every row of column {name!r}", got, f"fill it, or set {remedy}")


def _first_row(mask: npt.NDArray[np.bool_], rows: RowNumbers | None) -> str:
    found = np.flatnonzero(mask)
    return f"row {int(found[0] if rows is None else rows[found].min())} (counted from 0)"
