"""`cutlayer export` from the command line."""

from __future__ import annotations

from pathlib import Path

from cutlayer_export.part import load_part
from tests.cli.jobs import Place


def test_the_command_writes_a_part_and_its_card(finished: Path, place: Place) -> None:
    result = place.call("export", finished, "--as", "bank", "--out", "bank-part")
    assert (result.code, "README.md" in result.out) == (0, True), result.err
    document = place.call("export", finished, "--as", "telco", "--out", "telco-part", "--json").document()
    assert document["files"] == ["README.md", "architecture.json", "encoder.json", "weights.safetensors"]
    assert load_part(place.folder / "bank-part").task.classes == ("0", "1")
    assert "did you mean 'telco'" in place.call("export", finished, "--as", "telc", "--out", "x").error
    registry = ("--registry", "sqlite:///mlflow.db")
    for party, options in (("telco", (*registry, "--model", "credit")), ("bank", registry), ("bank", ("--model", "m"))):
        refused = place.call("export", finished, "--as", party, "--out", "x", *options)
        assert "--registry and --model together, for bank, whose part predicts" in refused.error
    secret = ("--registry", "https://me:word@mlflow.example", "--model", "credit")
    refused = place.call("export", finished, "--as", "bank", "--out", "x", *secret)
    assert (refused.code, "word@" in refused.error) == (2, False)
    assert not (place.folder / "x").exists()
    result = place.call("export", finished, "--as", "telco", "--out", "telco-part")
    assert (result.code, "a new or empty folder" in result.error) == (2, True)
