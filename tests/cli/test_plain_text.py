"""Output in an encoding that lacks some characters."""

from __future__ import annotations

import io

import pytest

from cutlayer.cli.plain_text import spell_out


@pytest.mark.parametrize(
    ("encoding", "written"),
    [("ascii", b"R2 -0.5 to +-1, 95 %, Z?rich"), ("latin-1", b"R\xb2 -0.5 to \xb11, 95\xa0%, Z\xfcrich")],
)
def test_missing_characters_are_written_by_others(encoding: str, written: bytes) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    spell_out(stream)
    stream.write("R² −0.5 to ±1, 95\u00a0%, Zürich")
    stream.flush()
    assert raw.getvalue() == written


def test_a_stream_of_text_stays_as_it_is() -> None:
    stream = io.StringIO()
    spell_out(stream)
    stream.write("R²")
    assert stream.getvalue() == "R²"
