"""The tables of the scale benchmarks, their meter, and the page that is written from their results."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import parquet

from benchmarks import scale, scale_page, scale_partial, scale_tables
from benchmarks.scale import STAGES, Meter, Size, Stage, counts_to, summary
from benchmarks.scale_alignment import scale_alignment
from benchmarks.scale_tables import make_tables, scale_job

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer categories and smaller batches; what lasts as long as a process is for processes of the benchmark."""
    monkeypatch.setattr(scale_tables, "CODES", 200)
    monkeypatch.setattr(scale_tables, "BATCH", 512)
    for module in (scale, scale_partial):
        monkeypatch.setattr(module, "keep_freed_memory", lambda: True)


def test_tables_overlap_and_do_not_depend_on_their_size(tmp_path: Path) -> None:
    make_tables(tmp_path, 1000)
    publisher, network = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("publisher", "network"))
    mine, theirs = (table.column("id").to_pylist() for table in (publisher, network))
    assert len(set(mine)) == len(set(theirs)) == 1000
    assert len(set(mine) & set(theirs)) == 800
    assert mine != sorted(mine)
    assert (publisher.num_columns, network.num_columns) == (15, 27)
    assert 0.1 < sum(publisher.column("label").to_pylist()) / 1000 < 0.9
    assert scale_job(tmp_path, "64 MB").train.shuffle == "blocks"
    (tmp_path / "larger").mkdir()
    make_tables(tmp_path / "larger", 1100)
    larger = parquet.read_table(tmp_path / "larger" / "publisher.parquet").to_pylist()
    by_id = {row["id"]: row for row in larger}
    assert all(by_id[row["id"]] == row for row in publisher.to_pylist())


def test_time_goes_to_the_innermost_stage() -> None:
    meter = Meter()
    with meter.running(), meter.stage("train"):
        outer = meter.wrap("audit", lambda: sum(range(200_000)))()
    assert outer == 19_999_900_000
    assert meter.stages["audit"].seconds > 0
    assert meter.stages["train"].wall >= 0
    assert meter.stages["train"].peak_mb > 1


def test_memory_between_stages_is_measured_too() -> None:
    meter = Meter()
    with meter.running():
        while not meter.between_mb:
            pass
    assert meter.between_mb > 1
    assert not meter.stages


def test_every_stage_of_a_run_is_measured(tmp_path: Path) -> None:
    make_tables(tmp_path, 2_000)
    size = scale.measure(tmp_path, 2_000, "1 GB")
    assert {name for name, stage in size.stages.items() if stage.seconds > 0} == {*STAGES}


def test_slopes_are_those_of_the_times() -> None:
    def size(rows: int, power: float) -> Size:
        stages = {name: Stage((rows / 1e5) ** power) for name in scale_page.STAGES}
        return Size(rows, "cutlayer", stages, 1e6 / power, 1.0)

    found = summary("64 MB", [size(10**7, 1.5), size(10**5, 1.5)])
    assert set(found.slopes.values()) == {1.5}
    assert found.throughput == 1
    assert counts_to(10**6) == [10**5, 10**6]
    assert counts_to(10) == [10]


def test_an_intersection_is_measured_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.scale_alignment.intersect", None)  # of this process alone
    (size,) = scale_alignment(2000).sizes
    assert (size.rows, size.peak_mb > 1, size.seconds > 0) == (2000, True, True)


def test_the_published_page_is_written_from_the_published_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "figures").mkdir()
    monkeypatch.setattr(scale_page, "OUT", tmp_path)
    scale_page.main()
    for name in ("scale.md", "figures/scale-seconds.svg", "figures/scale-memory.svg"):
        assert (tmp_path / name).read_text() == (PUBLISHED / name).read_text()


@pytest.mark.usefixtures("in_threads")
def test_a_run_on_all_rows_is_measured_beside_one_on_the_common_rows() -> None:
    measured = scale_partial.scale_partial(5_000)
    assert {*measured} == {"common", "all"}
    for peaks in measured.values():
        assert {*peaks} == {"encode", "train", "evaluate", "outside", "seconds"}
        assert min(peaks.values()) > 0
