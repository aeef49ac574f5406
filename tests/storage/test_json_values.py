"""JSON of files from somebody else: few bytes stand for many values."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from cutlayer.errors import RunFolderError
from cutlayer.results.summary import Summary
from cutlayer.storage.checksum import unseal
from cutlayer.storage.json_values import MAX_VALUES, parse_json


@pytest.mark.parametrize("text", ["[[]" + ",[]" * MAX_VALUES + "]", b"[{}" + b",{}" * MAX_VALUES + b"]"])
def test_many_values_are_refused_before_they_take_memory(text: str | bytes) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"expected up to {MAX_VALUES:,} values"):
        parse_json(text)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_document_with_as_many_values_as_may_be_is_read() -> None:
    text = json.dumps([[]] * (MAX_VALUES // 2 - 1))
    assert len(parse_json(text)) == MAX_VALUES // 2 - 1


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "1 2"])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply|Expecting|Extra data"):
        parse_json(text)


def test_a_run_folder_with_many_values_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("[[]" + ",[]" * MAX_VALUES + "]")
    with pytest.raises(RunFolderError, match=r"is damaged .* values"):
        Summary.read(path)
    with pytest.raises(ValueError, match="values"):
        unseal(path.read_bytes())
