"""An audit lists what attackers knew by codes, which other versions than this one do not write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutlayer.attacks.knowledge import Need
from cutlayer.errors import RunFolderError
from cutlayer.results.audit import Audit, RunAudit
from tests.results.leaks import leak_result


def test_codes_are_stored_and_a_sentence_in_their_place_asks_for_another_audit(tmp_path: Path) -> None:
    leak = leak_result(0.8, knowledge=(Need.FEW_LABELS,))
    file = Audit(runs={"this run": RunAudit(leaks=(leak,))}).write(tmp_path / "audit.json")
    assert Audit.read(file).runs["this run"].leaks == (leak,)
    text = file.read_text()
    assert json.loads(text)["runs"]["this run"]["leaks"][0]["knowledge"] == ["few_labels"]
    file.write_text(text.replace('"few_labels"', '"the labels of a few rows, up to 200"'))
    with pytest.raises(RunFolderError, match=r"knowledge.*'few_labels'.*run the audit again"):
        Audit.read(file)
