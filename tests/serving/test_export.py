"""A party's part as files: rebuilt from them, it computes the same; and its card says no more than it should."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.consent import allowed
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError, CutlayerError
from cutlayer.results.finding import Finding
from cutlayer.serving.models import PartyModel, RowEmbedder, TrainedModels
from cutlayer.training.folder import RunFolder
from cutlayer_export.model_card import model_card, write_card
from cutlayer_export.part import ARCHITECTURE, Architecture, ExportResult, export_part, load_part
from tests.serving.runs import NOISY, tables, trained

Trained = tuple[Any, RunFolder]
PARTIES = ("bank", "telco", "shop")
SECRET = {"label_dp": {"eps": 3.0}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    changes = {
        "parties.bank.privacy": SECRET,
        "parties.telco.privacy": NOISY,
        "parties.bank.audit": {"attacks": ["norm", "direct"]},
        "parties.telco.audit": {"attacks": ["attribute"]},
    }
    bank = tables()["bank"]
    words = [("paid", "unpaid")[label] for label in bank["default"].to_pylist()]
    return trained(tmp_path_factory.mktemp("run"), changes, bank=bank.set_column(2, "default", [words]))


@pytest.fixture(scope="module")
def exports(run: Trained, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ExportResult]:
    folder = tmp_path_factory.mktemp("exports")
    return {name: export_part(run[0], PartyModel.load(*run, name), folder / name) for name in PARTIES}


def encoded(run: Trained, name: str) -> Store:
    model = TrainedModels.load(*run)
    table = tables(90, seed=8)[name].sort_by("id")
    return Store(model.encoders[name].transform(table, name), model.encoders[name].columns)


@pytest.mark.parametrize("name", PARTIES)
def test_weights_and_architecture_rebuild_the_part(run: Trained, exports: dict[str, ExportResult], name: str) -> None:
    model, part, store = TrainedModels.load(*run), load_part(exports[name].folder), encoded(run, name)
    assert part.encoder == model.encoders[name]
    assert part.bottom is not None
    rows = torch.arange(store.rows)
    with torch.no_grad():
        wanted = RowEmbedder(model.bottoms[name], store)(rows)
        assert torch.equal(RowEmbedder(part.bottom, store)(rows), wanted)
    assert (part.top is not None) == (name == "bank")
    if part.top is not None:
        made = {party: torch.randn(9, width) for party, width in model.widths.items()}
        assert torch.equal(part.top(made), model.top(made))
        assert (part.task, part.task.classes) == (model.task, ("paid", "unpaid"))
    else:
        with pytest.raises(CutlayerError, match="part of the active party"):
            _ = part.task


def test_no_file_is_readable_by_others(exports: dict[str, ExportResult]) -> None:
    for exported in exports.values():
        assert exported.files == ("architecture.json", "encoder.json", "weights.safetensors")
        assert all(path.stat().st_mode & 0o077 == 0 for path in exported.folder.iterdir())


@pytest.mark.parametrize("kind", ["wide_deep", "linear"])
def test_other_kinds_of_models_are_exported(tmp_path: Path, kind: str) -> None:
    bottom = {"linear": {"kind": "linear", "width": 3}, "wide_deep": {"kind": "wide_deep", "hidden": [8, 4]}}[kind]
    top = {"kind": "multi_head"} if kind == "linear" else {"kind": "wide_deep"}
    model = {"bottom": bottom, "top": top}
    small = trained(tmp_path / "run", {"model": model, "train.epochs": 1})
    for name in PARTIES:
        exported = export_part(small[0], PartyModel.load(*small, name), tmp_path / name)
        assert load_part(exported.folder).bottom is not None


def test_the_card_of_each_part_says_what_its_party_may_know(run: Trained, exports: dict[str, ExportResult]) -> None:
    cards = {}
    for name, exported in exports.items():
        model = PartyModel.load(*run, name)
        write_card(model_card(*run, model, Architecture.read(exported.folder / ARCHITECTURE), exported), exported)
        cards[name] = (exported.folder / "README.md").read_text()
    sections = ("Data", "Metrics", "Leaks found", "Ledger", "What this part can do alone", "Handle with care")
    for card in cards.values():
        assert all(f"\n## {section}\n" in card for section in sections)
    assert "label\\_dp" in cards["bank"]
    assert "labels, from" in cards["bank"]
    assert "1 / (1 + exp(-z)) is the probability of unpaid, the positive class" in cards["bank"]
    assert "without telco: AUC" in cards["bank"]
    assert "dp\\_embedding" in cards["telco"]
    assert "by attribute" in cards["telco"]
    assert "shop had no protection" in cards["shop"]
    # The key was supplied.
    assert ["not private" in cards[name] for name in PARTIES] == [True, True, False]
    for name in ("telco", "shop"):
        # A defence is not revealed to the party it defends against, and neither are classes or columns.
        for secret in ("label", "unpaid", "norm", "balance", "accuracy"):
            text = cards[name]
            for common in ("or labels to train", "labels reaches", "what this party learns of the labels"):
                text = text.replace(common, "")
            assert secret not in text, (name, secret)
        other = json.loads((exports[name].folder / ARCHITECTURE).read_text())
        assert other["top"] is None
        assert "paid" not in json.dumps(other)
    assert "usage" not in cards["bank"] + cards["shop"]


def test_the_active_partys_card_names_no_column_and_no_protection_of_another(run: Trained, tmp_path: Path) -> None:
    """An audit of all parties here finds more than the label owner may hand on."""
    folder = RunFolder(Path(shutil.copytree(run[1].path, tmp_path / "run")))
    details = [
        ("telco", "nopeek of telco covered all 8 messages"),
        ("bank", "label_dp of bank covered all 192 labels"),
        ("telco", "9 canaries show that dp_embedding of telco spends more"),
        # Names of parties in the text do not matter.
        ("telco", "attribute of bank on the embeddings reaches AUC 1.000 of usage"),
        ("bank", "norm reads 0.900 of the labels on the link of telco"),
        ("", "the model is of no use"),
        (None, "an older audit named spent"),
    ]
    findings = [
        Finding(code="CL101", severity="warning", title="title", detail=text, remedy="none", owner=owner)
        for owner, text in details
    ]
    folder.audit.model_copy(update={"findings": tuple(findings)}).write(folder.path / "audit.json")
    model = PartyModel.load(run[0], folder, "bank")
    exported = export_part(run[0], model, tmp_path / "out")
    card = model_card(run[0], folder, model, Architecture.read(exported.folder / ARCHITECTURE), exported)
    assert "norm reads 0.900" in card
    assert "dp of bank covered" in card
    assert "of no use" in card
    for secret in ("usage", "nopeek", "embedding of telco", "older audit"):
        assert secret not in card, secret


def test_bad_exports_are_refused(run: Trained, exports: dict[str, ExportResult], tmp_path: Path) -> None:
    telco = exports["telco"].folder
    with pytest.raises(CutlayerError, match="a new or empty folder"):
        export_part(run[0], PartyModel.load(*run, "telco"), telco)
    mixed = Path(shutil.copytree(telco, tmp_path / "mixed"))
    data = bytearray((mixed / "weights.safetensors").read_bytes())
    data[-3] ^= 1
    (mixed / "weights.safetensors").write_bytes(data)
    with pytest.raises(CutlayerError, match="checksum; export it again"):
        load_part(mixed)
    shutil.copy(exports["shop"].folder / "weights.safetensors", mixed)
    with pytest.raises(CutlayerError, match="weights of the bottom model"):
        load_part(mixed)
    (mixed / ARCHITECTURE).unlink()
    with pytest.raises(CutlayerError, match="the architecture of an exported model"):
        load_part(mixed)
    os.mkfifo(mixed / ARCHITECTURE)  # whoever reads it waits without an end
    with pytest.raises(CutlayerError, match="a device or pipe at"):
        load_part(mixed)


@pytest.mark.parametrize(
    "stated",
    [
        {"cardinalities": [2**40]},
        {"numbers": 2**40},
        {"section": {"kind": "mlp", "hidden": [65_536, 65_536]}},
        {"section": {"kind": "mlp", "hidden": [1] * 10_000}},
    ],
)
def test_shapes_that_the_weights_do_not_have_are_refused_before_memory_is_taken(
    exports: dict[str, ExportResult], tmp_path: Path, stated: dict[str, Any]
) -> None:
    folder = Path(shutil.copytree(exports["telco"].folder, tmp_path / "theirs"))
    architecture = json.loads((folder / ARCHITECTURE).read_text())
    architecture["bottom"] |= stated
    (folder / ARCHITECTURE).write_text(json.dumps(architecture))
    with pytest.raises(CutlayerError, match=r"numbers for a model of|256"):
        load_part(folder)


def test_an_encoder_of_more_codes_than_its_run_has_is_refused(run: Trained, tmp_path: Path) -> None:
    folder = RunFolder(Path(shutil.copytree(run[1].path, tmp_path / "theirs")))
    path = folder.data("telco") / "encoder.json"
    encoder = json.loads(path.read_text())
    encoder["encoders"] = [
        {**each, **({"cardinality": 2**40} if "cardinality" in each else {})} for each in encoder["encoders"]
    ]
    path.write_text(json.dumps(encoder))
    with pytest.raises(CutlayerError, match="numbers for a model of"):
        PartyModel.load(run[0], folder, "telco")


def test_an_export_that_fails_leaves_nothing_and_can_be_repeated(
    run: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "telco"
    with monkeypatch.context() as small:
        small.setattr(Architecture, "write", full)
        with pytest.raises(OSError, match="No space left"):
            export_part(run[0], PartyModel.load(*run, "telco"), out)
    assert [*out.iterdir()] == []
    assert "weights.safetensors" in export_part(run[0], PartyModel.load(*run, "telco"), out).files


def test_a_shared_export_imports_nothing_without_consent(exports: dict[str, ExportResult], tmp_path: Path) -> None:
    """An export comes from somebody else: what it names must not run."""
    folder = Path(shutil.copytree(exports["telco"].folder, tmp_path / "theirs"))
    stated = json.loads((folder / ARCHITECTURE).read_text())
    stated["bottom"]["section"] = {"kind": "python", "path": "evil_models:Evil"}
    (folder / ARCHITECTURE).write_text(json.dumps(stated))
    (tmp_path / "evil_models.py").write_text("raise SystemExit('imported')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        with pytest.raises(ConfigError, match="evil_models"):
            load_part(folder)
        with allowed("evil_models"), pytest.raises(ConfigError, match="SystemExit: imported"):
            load_part(folder)
