"""Ids of tables without a common row, for the error: only where all tables are on one machine, in one owner's hands."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.ids import with_spaces
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import NothingInCommon

_SHOWN = 2


def with_examples(failure: NothingInCommon, tables: Mapping[str, PartyTable]) -> NothingInCommon:
    """The same error with two ids of each party, and whether the ids would match in a simpler form.

    Args:
        failure: The error, which names no id.
        tables: Tables of all parties; between organisations nobody has them.
    """
    texts = {name: table.id_texts() for name, table in tables.items()}
    heads = {name: with_spaces(text.slice(0, _SHOWN)).to_pylist() for name, text in texts.items()}
    shown = ", ".join(f"{' and '.join(head)} at {name}" for name, head in heads.items())
    matched = _matched([_simpler(text) for text in texts.values()])
    hint = f"; without leading zeros and '.0' {matched:,} match" if matched else ""
    return NothingInCommon(f"{failure}; the first ids are {shown}{hint}")


def _simpler(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids without leading zeros, and without the decimals that a spreadsheet or a data frame adds to whole numbers."""
    return pc.replace_substring_regex(pc.replace_substring_regex(text, r"\.0+$", ""), "^0+([0-9])", r"\1")


def _matched(texts: list[pa.ChunkedArray]) -> int:
    common = pc.unique(texts[0])
    for text in texts[1:]:
        common = common.filter(pc.is_in(common, value_set=pc.unique(text)))
    return len(common)
