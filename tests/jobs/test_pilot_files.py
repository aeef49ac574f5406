"""A pilot by files, and a file of a pilot where a full run expects one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cutlayer.channel import Kind
from cutlayer.channel.parcel import Parcel
from cutlayer.errors import ProtocolError
from cutlayer.jobs.options import Progress
from cutlayer.jobs.party import run_party
from cutlayer.jobs.release_file import release_labels, release_training
from cutlayer.training.folder import RunFolder
from tests.jobs.test_graded_files import COMMON, GIVEN, LABELS, RELEASE, links_of, options_of, write_rows
from tests.parties.runs import ACTIVE, run
from tests.parties.test_grades import TELCO

COUNT = 100


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a pilot, and drawn labels for a full run."""
    folder = tmp_path_factory.mktemp("files")
    write_rows(folder, "common")
    options, mine = options_of(folder, pilot=COUNT), links_of(folder, None, ACTIVE)
    release_labels(COMMON, folder / LABELS, folder / ACTIVE, options, mine)
    release_labels(COMMON, folder / "full.labels", folder / "full", options_of(folder), mine)
    links = links_of(folder, None, TELCO)
    release_training(COMMON, TELCO, folder / RELEASE, folder / TELCO, options, links, folder / LABELS)
    return folder


def released(folder: Path) -> torch.Tensor:
    return load_file(folder / "checkpoint" / TELCO / "released.safetensors")["released"]


def test_the_pilot_by_files_is_that_of_one_process(written: Path, tmp_path: Path) -> None:
    options = options_of(written, pilot=COUNT)
    links = links_of(written, None, ACTIVE, releases=(written / RELEASE,))
    run_party(COMMON, ACTIVE, written / ACTIVE, options, Progress(), links)
    run(COMMON, GIVEN, tmp_path, pilot=COUNT)
    mine, theirs = released(written / TELCO), released(tmp_path)
    assert torch.equal(mine.nan_to_num(-1.0), theirs.nan_to_num(-1.0))
    sent = [each for each in Parcel(written / RELEASE, ACTIVE, None).messages() if each.kind is Kind.RELEASE]
    assert sum(each.nbytes for each in sent) == COUNT
    (found,) = RunFolder(written / ACTIVE).summary.pilot
    assert (found.party, found.rows) == (TELCO, COUNT)


def test_files_of_a_pilot_and_of_a_full_run_do_not_mix(written: Path, tmp_path: Path) -> None:
    links = links_of(written, None, TELCO)
    for labels, count in ((LABELS, 0), ("full.labels", COUNT)):
        options, out = options_of(written, pilot=count), tmp_path / f"{count}.release"
        with pytest.raises(ProtocolError, match="start all parties with --pilot"):
            release_training(COMMON, TELCO, out, tmp_path / f"{count}", options, links, written / labels)
        assert not out.exists()
    links = links_of(written, None, ACTIVE, releases=(written / RELEASE,))
    with pytest.raises(ProtocolError, match="a release of telco by the labels that it was sent for this run"):
        run_party(COMMON, ACTIVE, written / "full", options_of(written), Progress(), links)
