"""The page states the sample that the leaks were measured on."""

from __future__ import annotations

from cutlayer.report.section import Paragraph
from cutlayer.report.sections.leaks import leaks_section
from cutlayer.results.report import Report
from tests.report.reading import blocks_of

SAMPLE = "of each epoch 3 of 100 batches"


def test_the_sample_stands_before_the_leaks(report: Report) -> None:
    stated = leaks_section(report.model_copy(update={"sample": SAMPLE}))
    texts = [block.text for block in blocks_of(stated) if isinstance(block, Paragraph)]
    assert SAMPLE in texts
    without = [block.text for block in blocks_of(leaks_section(report)) if isinstance(block, Paragraph)]
    assert "" not in without
    assert len(without) == len(texts) - 1
