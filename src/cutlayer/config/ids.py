"""How the rows of a table are identified: the id column or columns, their normal form, and repeated ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from cutlayer.config.base import FrozenModel
from cutlayer.config.phases import Phase, grades_rows
from cutlayer.config.wording import near_miss

if TYPE_CHECKING:
    from cutlayer.config.case import Case

Rule = Literal["strip", "lower", "e164", "integer", "none"]
Columns = Annotated[tuple[str, ...], Field(min_length=1, max_length=8)]
MAX_KEYS = 4
BETWEEN_KEYS = "|"
ROW_NUMBER = "@row"


class IdConfig(FrozenModel):
    """Identification of rows. All parties of a job must use the same rules, in the same order.

    Attributes:
        column: Name of the id column, or of several that identify a row together: all of them must match, in the order
            written here. Or a list of such lists, the keys: rows are matched by the first, what is left by the next,
            and so on. `@row` takes the row numbers.
        normalise: Normal form of the values, for all columns or for each, in lists like those of `column`. `strip`
            removes whitespace around a text and composes its characters (Unicode NFC); `lower` also turns letters into
            small ones; `e164` is for telephone numbers in international form, whose punctuation it removes; `integer`
            is for whole numbers that a program wrote as `7.0` or `007`; `none` compares texts as they are.
        duplicates: Rule for an id that several rows have: `refuse` the table, take the `first` of these rows, or that
            with the `latest` value of `by`, or `drop` all of them. Or `keep` all, at the active party of a job with
            `rows: all`, where a passive party's row then serves each of them. With several keys it is the rule for the
            first of them.
        by: Column of dates or numbers that says which row of an id is the `latest`.
        pad_to: Number of rows to state in alignment by `psi`, at least that of the table: peers then see this number
            and not the true one.
    """

    column: str | Columns | Annotated[tuple[Columns, ...], Field(min_length=1, max_length=MAX_KEYS)]
    normalise: Rule | tuple[Rule, ...] | tuple[tuple[Rule, ...], ...] = "strip"
    duplicates: Literal["refuse", "first", "latest", "drop", "keep"] = "refuse"
    by: str | None = Field(default=None, min_length=1)
    pad_to: int | None = Field(default=None, ge=1, lt=2**31)

    @property
    def keys(self) -> tuple[IdConfig, ...]:
        """Columns and normal forms of each key; this alone, unless there are several."""
        if isinstance(self.column, str) or isinstance(self.column[0], str):
            return (self,)
        rules = [self.normalise] * len(self.column) if isinstance(self.normalise, str) else self.normalise
        return tuple(IdConfig(column=named, normalise=rule) for named, rule in zip(self.column, rules, strict=True))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of all keys, each once; `@row` among them stands for row numbers."""
        if isinstance(self.column, str):
            return (self.column,)
        named = (part for part in self.column for part in ((part,) if isinstance(part, str) else part))
        return tuple(dict.fromkeys(named))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The normal form of each column of a single key."""
        if isinstance(self.normalise, str):
            return (self.normalise,) * len(self.columns)
        return tuple(rule for rule in self.normalise if isinstance(rule, str))

    @property
    def rule(self) -> str:
        """The rules of all columns of all keys as one text, which the parties compare.

        >>> IdConfig(column=("name", "born"), normalise=("lower", "strip")).rule
        'lower+strip'
        >>> IdConfig(column=(("name", "born"), ("phone",)), normalise=(("lower", "strip"), ("e164",))).rule
        'lower+strip|e164'
        """
        return BETWEEN_KEYS.join("+".join(key.rules) for key in self.keys)

    @model_validator(mode="before")
    @classmethod
    def _column_alone(cls, raw: Any) -> Any:
        """A list of a single key is that key."""
        if isinstance(raw, IdConfig):
            return raw
        named = dict(raw) if isinstance(raw, Mapping) else {"column": raw}
        for name in ("column", "normalise"):
            value = named.get(name)
            if isinstance(value, list | tuple) and len(value) == 1 and isinstance(value[0], list | tuple):
                named[name] = value[0]
        return named

    def _faults(self) -> Iterator[str]:
        if (self.by is None) == (self.duplicates == "latest"):
            got = f"duplicates: {self.duplicates}{'' if self.by is None else f' and by: {self.by}'}"
            yield f"duplicates: latest with by: COLUMN, and no by without it, got {got}"
        if ROW_NUMBER in self.columns and (len(self.columns) > 1 or self.model_fields_set - {"column"}):
            yield f"{ROW_NUMBER} alone, got more; row numbers need no rule and cannot hide their number"
        several = not (isinstance(self.column, str) or isinstance(self.column[0], str))
        nested = any(not isinstance(rule, str) for rule in self.normalise)
        if not isinstance(self.normalise, str) and several is not nested:
            yield "lists of rules like those of the columns, got others"
        yield from self._faults_of_several() if several else self._faults_of_one()

    def _faults_of_several(self) -> Iterator[str]:
        if not isinstance(self.normalise, str) and len(self.normalise) != len(self.column):
            yield f"one rule, or a list for each of {len(self.column)} keys, got {len(self.normalise)}"
        named = [key.columns for key in self.keys]
        if len({frozenset(columns) for columns in named}) != len(named):
            yield "every key once, got one with the columns of another"
        if self.duplicates == "keep":
            yield "duplicates: refuse, first, latest or drop with several keys, got keep"

    def _faults_of_one(self) -> Iterator[str]:
        if len(self.rules) != len(self.columns):
            yield f"one rule, or one for each of {len(self.columns)} columns, got {len(self.rules)}"
        if not isinstance(self.column, str) and len(set(self.column)) != len(self.column):
            yield f"every id column once, got {', '.join(self.columns)}"

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> Any:
        """A column without settings is written as its name."""
        plain = isinstance(self.column, str) and IdConfig(column=self.column) == self
        return self.column if plain else dump(self)


def columns_of(partner_ids: Mapping[str, IdConfig]) -> tuple[str, ...]:
    """Names of the columns that refer to rows of partners, each once."""
    return tuple(dict.fromkeys(name for ids in partner_ids.values() for name in ids.columns))


def stated_rows_faults(case: Case) -> Iterator[str]:
    """A number of rows is stated only where the alignment does not show every row."""
    for name, party in case.job.parties.items():
        named = {"id": party.id, **{f"partner_ids.{of}": ids for of, ids in party.partner_ids.items()}}
        for key, ids in named.items() if case.job.alignment == "plain" else ():
            if ids is not None and ids.pad_to is not None:
                wanted = f"expected no parties.{name}.{key}.pad_to with alignment plain, which shows every row"
                yield f"{wanted}, got {ids.pad_to}; write alignment: psi"


def partner_ids_faults(case: Case) -> Iterator[str]:
    """Columns that refer to partners' rows are for a label owner who trains alone, on all of its rows."""
    job, owner = case.job, case.job.parties[case.job.active]
    where = f"parties.{job.active}"
    for name, ids in owner.partner_ids.items():
        if name not in job.passives:
            yield f"{where}.partner_ids.{name}: no passive party of that name{near_miss(name, [*job.passives])}"
        if len(ids.keys) > 1 or ROW_NUMBER in ids.columns or ids.model_fields_set & {"duplicates", "by"}:
            wanted = f"expected columns of a single key at {where}.partner_ids.{name}, with normalise and pad_to alone"
            yield f"{wanted}, got more; several rows may have one value"
    if not owner.partner_ids:
        return
    if owner.id is None or owner.id.duplicates == "keep" or len(owner.id.keys) > 1 or ROW_NUMBER in owner.id.columns:
        wanted = f"expected {where}.id of a column, or several, that differ in every row, with partner_ids"
        yield f"{wanted}, got another id; name the rows by it, and the partners' rows by partner_ids"
    if job.rows != "all":
        yield f"expected rows: all with {where}.partner_ids, got {job.rows}; a row may lack a partner"
    by_steps = "label_free" in owner.privacy or any(grades_rows(job, name) for name in job.passives)
    if "undefended" in job.compare and by_steps:
        yield f"expected no compare: undefended with {where}.partner_ids, got it; it trains end to end: leave it out"
    if odd := [name for name in job.passives if job.train.release_of(name) != "once"]:
        wanted = f"expected train.release: once with {where}.partner_ids, where a partner's row is in many batches"
        yield f"{wanted}, got gradients to {', '.join(odd)}; write train.release: once"


def repeated_ids_faults(case: Case) -> Iterator[str]:
    """No protection acts on gradients by the labels of rows where a partner's row has several of them.

    Labels are drawn for grades alone, where one of each id is sent.
    """
    job, config = case.job, case.job.parties[case.job.active].id
    repeated = config is not None and config.duplicates == "keep"
    if repeated and "label_dp" in job.parties[job.active].protections and Phase.LABELS not in job.phases:
        wanted = f"expected no parties.{job.active}.privacy.label_dp with id.duplicates: keep, but for grades"
        yield f"{wanted}, for which one label of each id is drawn, got it; leave it out, or let a partner grade rows"
    is_checked = repeated and job.draws_batches
    for acting in case.acting_protections(job.active, "cut_gradient", "gradient_out") if is_checked else ():
        wanted = f"expected no parties.{job.active}.privacy.{acting} with id.duplicates: keep, where one gradient has"
        yield f"{wanted} several rows' labels, got one; write train.release: once, or duplicates: first"
