"""The walk-through between organisations, word for word, on two machines: files, commands and what is sent."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutlayer.results.passive import PassiveReport
from cutlayer.training.folder import RunFolder
from tests.docs.conftest import ROWS
from tests.docs.machines import Machine, machines, why_not
from tests.docs.reading import ROOT, block

PAGE = ROOT / "docs" / "how-to" / "between-organisations.md"
STEPS = re.compile(
    r"\bAt the (?P<place>\w+):$"
    r"|^```console\n(?P<commands>.*?)^```$"
    r"|\bSend `(?P<file>[^`]+)` (?:back|to the \w+)(?:, which puts it at `(?P<target>[^`]+)`)?",
    re.M | re.S,
)
FINGERPRINT = re.compile(r"\b[0-9a-f]{4}(?:-[0-9a-f]{4}){7}\b")


class Walk:
    """Follows the page."""

    def __init__(self, base: Path, places: dict[str, Machine]) -> None:
        self.base, self.places = base, places
        self.here, self.read_out = "", ""
        self.printed: dict[str, str] = {}

    def through(self, text: str) -> None:
        """Take every step of a text."""
        for step in STEPS.finditer(text):
            if step["place"]:
                self.here = step["place"]
            elif step["file"]:
                (there,) = self.places.keys() - {self.here}
                target = step["target"] or Path(step["file"]).name
                shutil.copy(self.base / self.here / step["file"], self.base / there / target)
                self.read_out = FINGERPRINT.findall(self.printed[self.here])[-1]
            else:
                self.type_in(step["commands"])

    def type_in(self, commands: str) -> None:
        """Run the commands of a block: one after the other, those of different machines at the same time."""
        lines = [shlex.split(line.removeprefix("$ cutlayer ")) for line in commands.splitlines()]
        named = [words[words.index("--as") + 1] if "--as" in words else "" for words in lines]
        together = all(named)
        running = []
        for words, place in zip(lines, named, strict=True):
            # The page shows the fingerprints of an example.
            typed = [FINGERPRINT.sub(self.read_out, word) for word in words]
            started = self.places[place or self.here].start(typed)
            running.append((place or self.here, words, started))
            if not together:
                self.wait(*running[-1])
        if together:
            for each in running:
                self.wait(*each)

    def wait(self, place: str, words: list[str], started) -> None:
        code, folder = started.wait(), self.base / place
        assert code == 0, (place, words, (folder / "errors.txt").read_text())
        assert "Traceback" not in (folder / "errors.txt").read_text()
        self.printed[place] = (folder / "output.json").read_text()


@pytest.fixture
def places(tables: Path) -> Iterator[dict[str, Machine]]:
    """The bank's machine and the telco's, each with its table and the files of the page."""
    if problem := why_not():
        pytest.skip(problem)
    for name, table in (("bank", "bank.csv"), ("telco", "telco.parquet")):
        (tables / name).mkdir()
        shutil.move(tables / table, tables / name / table)
        (tables / name / "job.yaml").write_text(block(PAGE, "organisations.yaml"))
        (tables / name / f"{name}.yaml").write_text(block(PAGE, f"organisations-{name}.yaml"))
    with machines(tables, ["bank.example", "telco.example"]) as made:
        yield made


def test_the_walk_through_works_on_two_machines(tables: Path, places: dict[str, Machine]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    sections = text[text.index("## 1.") : text.index("## In containers")]
    assert len(re.findall(r"^\$ cutlayer ", sections, re.M)) == sections.count("$ cutlayer ") == 12
    walk = Walk(tables, places)
    walk.through(sections)
    bank, telco = (RunFolder(tables / name / "runs" / f"job-{name}") for name in places)
    assert len(bank.history()) == 5
    assert bank.summary.data.common == ROWS - 100
    assert json.loads((telco.path / "outcome.json").read_text())["epochs"] == 5
    assert PassiveReport.read(telco.path / "report.json").features, "the page says how to attack what was recorded"
    owned = {path.name for path in (tables / "telco").rglob("*")}
    assert not owned & {"bank.csv", "bank.key", "ca.key", "bank.yaml"}
    assert not {path.name for path in (tables / "bank").rglob("*")} & {"telco.parquet", "telco.key", "telco.yaml"}


def test_a_machine_sees_its_own_folder_and_network_alone(tables: Path, places: dict[str, Machine]) -> None:
    """What the walk-through shows depends on it: no path between the organisations but the cable."""
    code = places["telco"].start(["check", "job.yaml", "--as", "telco", "--local", str(tables / "bank" / "bank.yaml")])
    assert code.wait() == 2
    assert "cannot be read" in (tables / "telco" / "errors.txt").read_text()
    devices = Path(f"/proc/{places['telco'].process}/net/dev").read_text()
    assert re.findall(r"(\w+):", devices) == ["lo", "cable"]
