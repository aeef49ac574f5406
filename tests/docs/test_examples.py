"""Every example in the documentation is valid, and those that can run do."""

from __future__ import annotations

import doctest
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from cutlayer.config.load import load_job, load_private_part, with_private_part
from cutlayer.consent import allowed
from cutlayer.jobs.check import check_job
from cutlayer.models import modules_of
from tests.cli.jobs import audit_briefly
from tests.docs.reading import PAGES, ROOT, Block, block, blocks

HOW_TO = ROOT / "docs" / "how-to"
EVERY_YAML = [example for page in PAGES for example in blocks(page, "yaml")]


def audited(text: str, label: str, audit: str) -> str:
    """A job with the audit of one attack: the whole catalogue takes most of the time of so small a run."""
    assert text.count(label) == 1
    return text.replace(label, label + audit)


@pytest.mark.parametrize("example", EVERY_YAML, ids=lambda example: f"{example.page.stem}:{example.name}")
def test_every_yaml_example_is_valid(example: Block, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(example.text, encoding="utf-8")
    raw = YAML(typ="safe", pure=True).load(example.text)
    if "parties" in raw:
        hosts = ["mlflow.example", "db.example"]
        with allowed(*modules_of(raw.get("model", {})), hosts=hosts, paths=["/"]):
            check_job(load_job(file))
    elif "table" in raw:
        load_private_part(file)
    else:
        assert example.name == "gitlab.yaml", "an example that nothing checks"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sessions_print_what_they_say(page: Path) -> None:
    for number, one in enumerate(blocks(page, "python")):
        if one.text.startswith(">>>"):
            scope = {} if number == 0 else scope  # noqa: F821 - a page's sessions follow one another
            test = doctest.DocTestParser().get_doctest(one.text, scope, page.name, str(page), 0)
            assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0
            scope = test.globs


def test_the_criteo_example_reads_a_file_without_header(tmp_path: Path, cutlayer: Callable) -> None:
    text = (ROOT / "examples" / "criteo-small.yaml").read_text(encoding="utf-8")
    (tmp_path / "criteo.yaml").write_text(text.replace("data/criteo_train_137k.tsv.gz", "train.tsv.gz"))
    with gzip.open(tmp_path / "train.tsv.gz", "wt") as file:
        for row in range(400):
            cells = [row % 2, *range(row, row + 13), *(f"{row % 7 + index:08x}" for index in range(26))]
            file.write("\t".join(map(str, cells)) + "\n")
    code, found = cutlayer("check", tmp_path / "criteo.yaml")
    assert code == 0
    assert [(party["categorical"], party["numeric"]) for party in found["parties"]] == [(0, 0), (26, 13)]


def test_the_halves_of_images_train(tmp_path: Path, cutlayer: Callable) -> None:
    text = audited(block(HOW_TO / "images.md", "images.yaml"), "label: digit", "\n    audit: {attacks: [spectral]}")
    (tmp_path / "images.yaml").write_text(text, encoding="utf-8")
    draw = np.random.default_rng(0)
    images, digits = draw.integers(0, 256, (140, 28, 28), dtype=np.uint8), draw.integers(0, 3, 140)
    parts = {"x_train": images[:100], "y_train": digits[:100], "x_test": images[100:], "y_test": digits[100:]}
    np.savez(tmp_path / "mnist.npz", **parts)
    code, report = cutlayer("run", tmp_path / "images.yaml")
    assert code == 0
    assert {(party["name"], party["numeric"], party["width"]) for party in report["parties"]} == {
        ("clinic", 28 * 14, 84),
        ("lab", 28 * 14, 84),
    }


def test_your_own_model_trains(tables: Path, monkeypatch: pytest.MonkeyPatch, cutlayer: Callable) -> None:
    (tables / "my_models.py").write_text(block(HOW_TO / "model.md", "my_models.py"), encoding="utf-8")
    text = audited(block(HOW_TO / "model.md", "model.yaml"), "label: default", ", audit: {attacks: [spectral]}")
    (tables / "model.yaml").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tables)
    code, report = cutlayer("run", tables / "model.yaml", "--allow-model", "my_models")
    assert code == 0
    assert {party["name"]: party["width"] for party in report["parties"]} == {"bank": 8, "telco": 12}
    assert any(layer["party"] == "telco" for layer in report["layers"])


def test_a_gate_stops_a_build(tables: Path, cutlayer: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    audit_briefly(monkeypatch)
    text = block(HOW_TO / "gates.md", "gates.yaml").replace(
        "fail_above: {label_auc: 0.95", "attacks: [norm], fail_above: {label_auc: 0.501"
    )
    (tables / "job.yaml").write_text(text + "train: {epochs: 1}\n", encoding="utf-8")
    leaks = tables / "leaks"
    assert cutlayer("run", tables / "job.yaml", "--out", leaks)[0] == 1
    assert '<failure type="GateFailed"' in (leaks / "gates.xml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "shared", "prefix"),
    [("processes.md", "shared.yaml", ""), ("between-organisations.md", "organisations.yaml", "organisations-")],
)
def test_the_files_of_several_processes_fit_together(page: str, shared: str, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "shared.yaml").write_text(block(HOW_TO / page, shared), encoding="utf-8")
    for name in ("bank.yaml", "telco.yaml"):
        (tmp_path / name).write_text(block(HOW_TO / page, prefix + name), encoding="utf-8")
    job = load_job(tmp_path / "shared.yaml")
    assert job.parties[job.active].address
    for name in job.parties:
        whole = with_private_part(job, name, load_private_part(tmp_path / f"{name}.yaml"))
        check_job(whole)
        assert whole.digest() == job.digest()
