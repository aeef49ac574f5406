"""Row ids: their canonical texts and 16-byte digests, the same at every party."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config.ids import IdConfig, Rule
from cutlayer.data.digest_shares import has_duplicates
from cutlayer.data.faults import fault
from cutlayer.data.feature_columns import is_text, without_dictionary, without_nan
from cutlayer.errors import DataError
from cutlayer.storage.row_arrays import computed_rows, row_array

IdKind = Literal["integer", "text", "row"]
Digests = npt.NDArray[np.uint8]

DIGEST_BYTES = 16
STRIP_REMEDY = ", or set id.normalise to strip"
"""End of an error, which a caller of `cutlayer serve` can do nothing with."""
WHOLE_NUMBER = r"^(0|-?[1-9][0-9]*)$"
SEPARATOR = "\x1f"
"""Between the columns of an id of several: the unit separator of ASCII, which no text may hold then."""
TELEPHONE = r"^\+[1-9][0-9]{6,14}$"
_PUNCTUATION = r"[\s().\-/\x{2010}-\x{2015}\x{00a0}]"
_PLAIN_NAME = re.compile(r"\w[\w .-]*")
"""Names that YAML reads without quotes."""
_SHOWN = 3
_HASHES = 1 << 12
"""Hashes at a time, which fit into a core's cache."""
_HASHED_ROWS = 1 << 16
"""Ids that are Python objects at a time, which take ten times the memory of their text."""
_MAX_EXACT_INTEGER = 2**53


def row_digests(column: pa.ChunkedArray | pa.Array, where: str = "ids") -> Digests:
    """Digest every row's id.

    The canonical text of an integer is its decimal digits, that of a text the text in Unicode NFC without surrounding
    whitespace; so 7 in a Parquet file and "7" in a CSV file are the same id, and "07" is another one. The digest is
    BLAKE2b of the text's UTF-8 bytes.

    Args:
        column: (n,) integers or text; floats only if all are whole.
        where: Name of the data, for error messages.

    Returns:
        uint8 (n, 16), in the column's order.

    Raises:
        DataError: An id is missing, repeats, or is of another type.

    >>> row_digests(pa.array([7]))[0, :4].tolist() == row_digests(pa.array([" 7"]))[0, :4].tolist()
    True
    """
    text = canonical_ids(column, where)
    digests = digests_of(text)
    if has_duplicates(digests):
        raise duplicates_error(text, where)
    return digests


_EMPTY = blake2b(digest_size=DIGEST_BYTES)


def joined_digests(texts: Sequence[bytes]) -> bytes:
    """Digests of canonical texts, one after the other.

    Copies of a hash of nothing, some thousand at a time, take 0.6 of the time of a new one for each text.
    """
    hashed: list[bytes] = []
    for start in range(0, len(texts), _HASHES):
        part = texts[start : start + _HASHES]
        hashes = [_EMPTY.copy() for _ in part]
        for _ in map(blake2b.update, hashes, part):
            pass
        hashed += map(blake2b.digest, hashes)
    return b"".join(hashed)


def digests_of(text: pa.ChunkedArray) -> Digests:
    """Digests of canonical texts (n,), uint8 (n, 16)."""
    digests = row_array((len(text), DIGEST_BYTES), np.uint8)
    for start in range(0, len(text), _HASHED_ROWS):
        keys = text.slice(start, _HASHED_ROWS).cast(pa.large_binary()).to_pylist()
        hashed = np.frombuffer(joined_digests(keys), dtype=np.uint8)
        digests[start : start + len(keys)] = hashed.reshape(-1, DIGEST_BYTES)
    return digests


def id_kind(text: pa.ChunkedArray) -> IdKind:
    """`integer` if all canonical texts (n,) are decimal integers without leading zeros, else `text`.

    >>> [id_kind(canonical_ids(pa.array(ids), "ids")) for ids in (["1", "20"], ["1", "020"])]
    ['integer', 'text']
    """
    whole = pc.all(pc.match_substring_regex(text, WHOLE_NUMBER)).as_py()
    return "integer" if whole else "text"


def canonical_ids(
    column: pa.ChunkedArray | pa.Array, where: str, rule: Rule = "strip", *, allow_missing: bool = False
) -> pa.ChunkedArray:
    """The canonical text of every id, `large_string` (n,).

    Args:
        column: (n,) integers, text or dates; floats only if all are whole.
        where: Name of the data, for error messages.
        rule: Normal form of the texts; see `IdConfig.normalise`.
        allow_missing: Whether a row may have no id, whose text is then missing.

    Raises:
        DataError: An id is missing, of another type, or no telephone or whole number where the rule wants one.

    >>> canonical_ids(pa.array(["+49 (89) 123-456", "004989123456"]), "ids", "e164").to_pylist()
    ['+4989123456', '+4989123456']
    """
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    column = without_nan(without_dictionary(column))
    text = (column if is_text(column.type) else _whole_or_date(column, where)).cast(pa.large_string())
    if rule != "none":
        text = pc.utf8_trim_whitespace(text)
        text = pc.utf8_normalize(pc.utf8_lower(text) if rule == "lower" else text, form="NFC")
    absent = pc.fill_null(pc.equal(text, ""), True)
    if allow_missing:
        text = pc.if_else(absent, pa.scalar(None, text.type), text)
    elif pc.any(absent).as_py():
        row = pc.index(absent, True).as_py()
        got = f"none in {pc.sum(absent).as_py()} rows, the first is row {row} (counted from 0)"
        raise fault(where, "an id in every row", got, "drop these rows or fill their ids")
    if rule == "integer":
        return _integers(text, where)
    return _telephone(text, where) if rule == "e164" else text


def id_texts(table: pa.Table, ids: IdConfig, where: str, *, allow_missing: bool = False) -> pa.ChunkedArray:
    """The canonical text of every row's id, `large_string` (n,); an id of several columns as one text.

    Args:
        table: Holds the id columns.
        ids: Names and normal forms of the id columns, of a single key.
        where: Name of the data, for error messages.
        allow_missing: Whether a row may lack a column, so that its text is missing.

    Raises:
        DataError: An error of `canonical_ids`, or a text of several columns holds the character that separates them.
    """
    named = zip(ids.columns, ids.rules, strict=True)
    texts = [
        canonical_ids(table.column(name), f"{where}: id {name!r}", rule, allow_missing=allow_missing)
        for name, rule in named
    ]
    if len(texts) == 1:
        return texts[0]
    for text in texts:
        if pc.any(pc.match_substring(text, SEPARATOR)).as_py():
            raise fault(
                f"{where}: id", "ids without control characters", "the unit separator in one", "clean the column"
            )
    between = pa.scalar(SEPARATOR, pa.large_string())
    return pc.binary_join_element_wise(*texts, between)


def with_spaces(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts of ids of several columns (n,), for people: with spaces between the columns."""
    return pc.replace_substring(text, SEPARATOR, " ")


def latest_rows(digests: Digests, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The row of each id with the largest value, of equal ones the last, ascending.

    Args:
        digests: uint8 (n, 16).
        values: Finite, (n,).
    """
    words = np.ascontiguousarray(digests).view(np.uint64)
    order = np.lexsort((values, words[:, 1], words[:, 0]))
    last = np.r_[(words[order][1:] != words[order][:-1]).any(axis=1), True]
    return np.sort(order[last]).astype(np.int64)


def as_sortable(digests: Digests) -> npt.NDArray[np.void]:
    """Digests (n, 16) as single values that NumPy sorts and compares, (n,)."""
    return np.ascontiguousarray(digests).view(f"V{DIGEST_BYTES}")[:, 0]


def keyed_hashes(digests: Digests, key: bytes, size: int) -> npt.NDArray[np.uint8]:
    """A hash of each digest under a key, by BLAKE2b.

    Args:
        digests: uint8 (n, 16).
        key: Up to 64 bytes.
        size: Bytes of a hash, up to 64.

    Returns:
        uint8 (n, size), as a `row_array`.
    """

    def hashed(part: slice) -> npt.NDArray[np.uint8]:
        hashes = np.empty((part.stop - part.start, size), dtype=np.uint8)
        for start in range(0, len(hashes), _HASHED_ROWS):
            rows = np.ascontiguousarray(digests[part][start : start + _HASHED_ROWS])
            whole = b"".join(blake2b(row.data, digest_size=size, key=key).digest() for row in rows)
            hashes[start : start + len(rows)] = np.frombuffer(whole, np.uint8).reshape(-1, size)
        return hashes

    return computed_rows(len(digests), np.uint8, hashed, (size,))


def first_rows(digests: Digests, *, drop_repeated: bool) -> npt.NDArray[np.int64]:
    """The rows that are left of a table with repeated ids, ascending.

    Args:
        digests: uint8 (n, 16).
        drop_repeated: Whether to leave out all rows of a repeated id, instead of all but the first.
    """
    _, rows, counts = np.unique(as_sortable(digests), return_index=True, return_counts=True)
    return np.sort(rows[counts == 1] if drop_repeated else rows).astype(np.int64)


def digests_by_rule(column: pa.ChunkedArray | pa.Array) -> dict[Rule, Digests]:
    """Digests of ids (n,) as each rule has them, uint8 (m, 16), by the rule; an id that does not fit a rule has none.

    >>> {rule: len(digests) for rule, digests in digests_by_rule(pa.array(["07", "x"])).items()}
    {'strip': 2, 'lower': 2, 'e164': 0, 'integer': 1, 'none': 2}
    """
    found: dict[Rule, Digests] = {}
    for rule in get_args(Rule):
        bare = {"e164": (_bare_telephone, TELEPHONE), "integer": (_bare_integer, WHOLE_NUMBER)}.get(rule)
        text = canonical_ids(column, "ids", "strip" if bare else rule, allow_missing=True).drop_null()
        if bare is not None:
            plain = bare[0](text)
            text = plain.filter(pc.match_substring_regex(plain, bare[1]))
        found[rule] = digests_of(text)
    return found


def rule_free_digests(*columns: pa.ChunkedArray | pa.Array) -> Digests:
    """Digests of ids in a form that they have whatever the rules that a job compares them by, uint8 (n, 16).

    Args:
        columns: The columns of the ids, (n,) each.

    >>> (rule_free_digests(pa.array(["007", "Ab "])) == rule_free_digests(pa.array(["+7", "ab"]))).all()
    np.True_
    """
    each = (_bare_integer(_visible(canonical_ids(column, "ids", "lower", allow_missing=True))) for column in columns)
    # Whole numbers first: 7.0 is no telephone number, of which 70 would be made.
    plain = [_bare_integer(_bare_if_telephone(text)) for text in each]
    return digests_of(pc.binary_join_element_wise(*plain, pa.scalar(SEPARATOR, pa.large_string())).drop_null())


def _visible(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts without characters that nobody sees, and each of several forms of a character as one (Unicode NFKC)."""
    return pc.utf8_lower(pc.utf8_normalize(pc.replace_substring_regex(text, r"\p{Cf}", ""), form="NFKC"))


def _bare_if_telephone(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Telephone numbers as `e164` has them, of any length, and other texts as they are: 1-12 is not 11-2."""
    bare = _bare_telephone(text)
    return pc.if_else(pc.match_substring_regex(bare, r"^\+[0-9]+$"), bare, text)


def _bare_telephone(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Telephone numbers as + and up to 15 digits (ITU-T E.164); other texts as others."""
    return pc.replace_substring_regex(pc.replace_substring_regex(text, _PUNCTUATION, ""), "^00", "+")


def _bare_integer(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole numbers in digits, without leading zeros and zeros after the point; other texts as they are."""
    return pc.replace_substring_regex(text, r"^\+?(-?)0*([0-9]+)(?:\.0*)?$", r"\1\2")


def _telephone(text: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    bare = _bare_telephone(text)
    wanted = "telephone numbers with the code of their country, such as +49 89 123456"
    remedy = "put + and the code of the country before them, without the leading 0"
    _check_all(pc.match_substring_regex(bare, TELEPHONE), where, wanted, remedy)
    return bare


def _integers(text: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    plain = _bare_integer(text)
    wanted = "whole numbers, such as 7, 7.0 or 007"
    _check_all(pc.match_substring_regex(plain, WHOLE_NUMBER), where, wanted, f"fix them{STRIP_REMEDY}")
    return plain


def _check_all(valid: pa.ChunkedArray, where: str, wanted: str, remedy: str) -> None:
    if not pc.all(valid, min_count=0).as_py():
        row = pc.index(valid, False).as_py()
        count = pc.sum(pc.invert(valid)).as_py()
        got = f"others in {count} rows, the first is row {row} (counted from 0)"
        raise fault(where, wanted, got, remedy)


def _whole_or_date(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return column
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        with suppress(pa.ArrowInvalid):
            whole = column.cast(pa.int64())
            if not pc.any(pc.greater(pc.abs(whole), _MAX_EXACT_INTEGER)).as_py():
                return whole
    raise fault(
        where, "ids that are whole numbers or text", f"{kind}", "turn the column into text, the same at all parties"
    )


def duplicates_error(text: pa.ChunkedArray, where: str, columns: Sequence[str] = ()) -> DataError:
    """The error of a table with repeated ids, which names some, and how to state a rule for them."""
    repeated = [(key, count) for key, count in Counter(text.to_pylist()).items() if count > 1]
    examples = ", ".join(f"{key!r} {count} times" for key, count in repeated[:_SHOWN])
    more = f" and {len(repeated) - _SHOWN} more ids" if len(repeated) > _SHOWN else ""
    rule = "set id.duplicates"
    if columns:
        named = [name if _PLAIN_NAME.fullmatch(name) else repr(name) for name in columns]
        column = named[0] if len(named) == 1 else f"[{', '.join(named)}]"
        rule = f"set id.duplicates, as in id: {{column: {column}, duplicates: first}}"
    return fault(where, "every id once", examples + more, f"one row per id: table.aggregate makes it, or {rule}")
