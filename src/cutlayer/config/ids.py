"""How the rows of a table are identified: the id column or columns, their normal form, and repeated ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from cutlayer.config.base import FrozenModel

Rule = Literal["strip", "lower", "e164", "integer", "none"]
MAX_ID_COLUMNS = 8
ROW_NUMBER = "@row"


class IdConfig(FrozenModel):
    """Identification of rows. All parties of a job must use the same rules, in the same order.

    Attributes:
        column: Name of the id column, or of several that identify a row together: all of them must match, in the order
            written here. `@row` takes the row numbers.
        normalise: Normal form of the values, for all columns or for each. `strip` removes whitespace around a text and
            composes its characters (Unicode NFC); `lower` also turns letters into small ones; `e164` is for telephone
            numbers in international form, whose punctuation it removes; `integer` is for whole numbers that a program
            wrote as `7.0` or `007`; `none` compares texts as they are.
        duplicates: Rule for an id that several rows have: `refuse` the table, take the `first` of these rows, or that
            with the `latest` value of `by`, or `drop` all of them; or `keep` all, at the active party of a job with
            `rows: all`, where a passive party's row then serves each of them.
        by: Column of dates or numbers that says which row of an id is the `latest`.
        pad_to: Number of rows to state in alignment by `psi`, at least that of the table: peers then see this number
            and not the true one.
    """

    column: str | Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_ID_COLUMNS)]
    normalise: Rule | tuple[Rule, ...] = "strip"
    duplicates: Literal["refuse", "first", "latest", "drop", "keep"] = "refuse"
    by: str | None = Field(default=None, min_length=1)
    pad_to: int | None = Field(default=None, ge=1, lt=2**31)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns; `@row` among them stands for row numbers."""
        return (self.column,) if isinstance(self.column, str) else self.column

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The normal form of each column."""
        return (self.normalise,) * len(self.columns) if isinstance(self.normalise, str) else self.normalise

    @property
    def rule(self) -> str:
        """The rules of all columns as one text, which the parties compare.

        >>> IdConfig(column=("name", "born"), normalise=("lower", "strip")).rule
        'lower+strip'
        """
        return "+".join(self.rules)

    @model_validator(mode="before")
    @classmethod
    def _column_alone(cls, raw: Any) -> Any:
        return raw if isinstance(raw, Mapping | IdConfig) else {"column": raw}

    @model_validator(mode="after")
    def _latest_by_a_column(self) -> IdConfig:
        if (self.by is None) == (self.duplicates == "latest"):
            got = f"duplicates: {self.duplicates}{'' if self.by is None else f' and by: {self.by}'}"
            raise ValueError(f"duplicates: latest with by: COLUMN, and no by without it, got {got}")
        return self

    @model_validator(mode="after")
    def _fits(self) -> IdConfig:
        if len(self.rules) != len(self.columns):
            raise ValueError(f"one rule, or one for each of {len(self.columns)} columns, got {len(self.rules)}")
        if len(set(self.columns)) != len(self.columns):
            raise ValueError(f"every id column once, got {', '.join(self.columns)}")
        if ROW_NUMBER in self.columns and (len(self.columns) > 1 or self.model_fields_set - {"column"}):
            raise ValueError(f"{ROW_NUMBER} alone, got more; row numbers need no rule and cannot hide their number")
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> Any:
        """A column without settings is written as its name."""
        plain = isinstance(self.column, str) and IdConfig(column=self.column) == self
        return self.column if plain else dump(self)
