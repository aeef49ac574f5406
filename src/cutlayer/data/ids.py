"""Row ids: their canonical texts and 16-byte digests, the same at every party."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from hashlib import blake2b
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.columns import decoded, is_text
from cutlayer.data.faults import fault

IdKind = Literal["integer", "text", "row"]
Digests = npt.NDArray[np.uint8]

DIGEST_BYTES = 16
_SHOWN = 3
_EXACT = 2**53


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
        DataError: an id is missing, repeats, or is of another type.

    >>> row_digests(pa.array([7]))[0, :4].tolist() == row_digests(pa.array([" 7"]))[0, :4].tolist()
    True
    """
    text = canonical_ids(column, where)
    hashed = b"".join(
        [blake2b(key, digest_size=DIGEST_BYTES).digest() for key in text.cast(pa.large_binary()).to_pylist()]
    )
    digests = np.frombuffer(bytearray(hashed), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    if has_duplicates(digests):
        raise _duplicates(text, where)
    return digests


def id_kind(column: pa.ChunkedArray | pa.Array, where: str = "ids") -> IdKind:
    """`integer` if all canonical texts are decimal integers without leading zeros, else `text`.

    >>> id_kind(pa.array(["1", "20"])), id_kind(pa.array(["1", "020"]))
    ('integer', 'text')
    """
    text = canonical_ids(column, where)
    whole = pc.all(pc.match_substring_regex(text, r"^(0|-?[1-9][0-9]*)$")).as_py()
    return "integer" if whole else "text"


def canonical_ids(column: pa.ChunkedArray | pa.Array, where: str) -> pa.ChunkedArray:
    """The canonical text of every id, `large_string` (n,); see `row_digests`."""
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    column = decoded(column)
    if is_text(column.type):
        text = pc.utf8_normalize(pc.utf8_trim_whitespace(column.cast(pa.large_string())), form="NFC")
    else:
        text = _whole(column, where).cast(pa.large_string())
    absent = pc.fill_null(pc.equal(text, ""), True)
    if pc.any(absent).as_py():
        row = pc.index(absent, True).as_py()
        got = f"none in {pc.sum(absent).as_py()} rows, the first is row {row} (counted from 0)"
        raise fault(where, "an id in every row", got, "drop these rows or fill their ids")
    return text


def has_duplicates(digests: Digests) -> bool:
    """Whether two rows of uint8 (n, 16) are equal."""
    words = np.ascontiguousarray(digests).view(np.uint64)
    high = np.sort(words[:, 0])
    if not (high[1:] == high[:-1]).any():
        return False
    ordered = words[np.lexsort((words[:, 1], words[:, 0]))]
    return bool((ordered[1:] == ordered[:-1]).all(axis=1).any())


def _whole(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_integer(kind):
        return column
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        with suppress(pa.ArrowInvalid):
            whole = column.cast(pa.int64())
            if not pc.any(pc.greater(pc.abs(whole), _EXACT)).as_py():
                return whole
    raise fault(
        where, "ids that are whole numbers or text", f"{kind}", "turn the column into text, the same at all parties"
    )


def _duplicates(text: pa.ChunkedArray, where: str) -> Exception:
    repeated = [(key, count) for key, count in Counter(text.to_pylist()).items() if count > 1]
    examples = ", ".join(f"{key!r} {count} times" for key, count in repeated[:_SHOWN])
    more = f" and {len(repeated) - _SHOWN} more ids" if len(repeated) > _SHOWN else ""
    return fault(where, "every id once", examples + more, "one row per id: aggregate or drop the rest")
