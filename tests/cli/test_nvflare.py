"""`cutlayer nvflare` from the command line; what it writes is tested in tests/nvflare."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.cli.jobs import Place

frame = import_module("cutlayer.cli.app")
POINT = "nvflare = cutlayer_nvflare.verb:nvflare"


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The metadata of the plugin, as its installation leaves it."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "cutlayer_nvflare-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cutlayer-nvflare\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[cutlayer.verbs]\n{POINT}\n")
    monkeypatch.syspath_prepend(folder)
    frame._command.cache_clear()
    yield info / "entry_points.txt"
    frame._command.cache_clear()


def test_the_entry_point_is_that_of_the_package() -> None:
    assert POINT in (Path(__file__).parents[2] / "plugins" / "nvflare" / "pyproject.toml").read_text().replace('"', "")


def test_a_verb_is_in_the_help_and_never_replaces_one_of_cutlayer(place: Place, installed: Path) -> None:
    installed.write_text(f"[cutlayer.verbs]\n{POINT}\nrun = nowhere:run\nbroken = nowhere:run\n")
    shown = place.call("--help")
    assert shown.code == 0
    assert "nvflare" in shown.out
    assert "broken" not in shown.out
    assert place.call("run", "--help").code == 0
    result = place.call("broken")
    assert result.code == 2
    assert "expected an importable nowhere:run for the verb broken" in result.error


def test_without_the_plugin_there_is_no_such_verb(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    frame._command.cache_clear()
    assert place.call("nvflare", place.file, "--out", "made").code == 2


def test_the_verb(place: Place, installed: Path) -> None:
    result = place.call("nvflare", place.file, "--out", "made", "--site", "bank=site-1", "--json").document()
    assert result["sites"] == {"bank": "site-1", "telco": "telco"}
    assert place.call("nvflare", place.file, "--out", "made").code == 2  # it holds a job already
    result = place.call("nvflare", place.file, "--out", "more")
    assert "telco: site telco, which needs local/cutlayer/" in result.out
    assert "left out: " in result.out
    for wrong, message in (
        (("--site", "bank"), "--site PARTY=SITE"),
        (("--site", "bank=a", "--site", "bank=b"), "--site bank=SITE once, got it twice"),
        (("--resume-job", "x"), "the id of an NVFlare"),
    ):
        result = place.call("nvflare", place.file, "--out", "third", *wrong)
        assert result.code == 2
        assert message in result.error
