"""Exported models as ONNX: every kind computes the same in another runtime, and the file names no source code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cutlayer.errors import ConfigError
from cutlayer.models import TOPS, Inputs, build_bottom, build_top
from cutlayer.serving.models import PartyModel
from cutlayer.training.folder import RunFolder
from cutlayer_export.onnx_program import onnx_bytes, trace_model
from cutlayer_export.part import export_part
from tests.conformance.table import MODELS
from tests.models.estimator_rows import BINARY, OWN, columns, fit, fit_briefly, labels_of, top_of
from tests.serving.runs import trained

# The packages are looked for and not imported, which takes a second in every worker.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("onnxscript") is None, reason="onnxscript is not installed (extra onnx)"),
    pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed (extra dev)"),
]
COLUMNS, IMAGE = Inputs((5, 7), 3), Inputs((), 2 * 12 * 12, (2, 12, 12))
KINDS: Sequence[tuple[Mapping[str, Any], Inputs]] = (
    ({"kind": "mlp", "hidden": [8, 4], "dropout": 0.3, "activation": "gelu"}, COLUMNS),
    ({"kind": "wide_deep", "hidden": [8, 4], "activation": "silu"}, COLUMNS),
    ({"kind": "linear", "width": 3}, COLUMNS),
    ({"kind": "tabular", "hidden": [8, 4], "frequencies": 5}, COLUMNS),
    ({"kind": "cnn", "width": 4}, IMAGE),
    ({"kind": "lenet5", "width": 4}, IMAGE),
    ({"kind": "resnet18", "channels": 1}, IMAGE),
)
# An exported part states the kind that `auto` stands for.
OTHERS = MODELS.keys() - {section["kind"] for section, _ in KINDS} - {"python", "auto", "columns", "grade"}
READS = {"mixed": COLUMNS, "numbers": Inputs((), 3), "image": IMAGE}
BOTTOM_CASES = (*KINDS, *(({"kind": name, **MODELS[name].settings}, READS[MODELS[name].reads]) for name in OTHERS))
TOP_CASES: Sequence[Mapping[str, Any]] = (
    {"kind": "mlp", "towers": [4], "activation": "tanh"},
    {"kind": "wide_deep"},
    {"kind": "multi_head"},
    {"kind": "laser"},
    {"kind": "indicator"},
)
# A party's name, and that of the output, may be names of the exporter's own tensors too.
WIDTHS = {"linear": 4, "telco-x": 4, "logits": 4}


@pytest.fixture(scope="module", autouse=True)
def _one_registry() -> Iterator[None]:
    """The exporter collects the operators of both libraries anew for each model, two thirds of its time."""
    from torch._export import utils as operators
    from torch.onnx._internal.exporter import _registration

    registry = getattr(_registration, "ONNXRegistry", None)
    named = "_materialize_cpp_cia_ops"  # gives every operator of PyTorch its name, which it keeps
    with pytest.MonkeyPatch.context() as patched:
        if registry is not None:
            patched.setattr(registry, "from_torchlib", staticmethod(cache(registry.from_torchlib)))
        if hasattr(operators, named):
            patched.setattr(operators, named, cache(getattr(operators, named)))
        yield


@pytest.fixture
def _no_source_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are traced without the source line of each node, a tenth of the time: what takes them out of a file is
    tested on a part of a run.
    """
    monkeypatch.setattr(torch.fx.config, "do_not_emit_stack_traces", True)


def drawn(inputs: Inputs, rows: int) -> tuple[Tensor, Tensor]:
    codes = [torch.randint(0, count, (rows,), dtype=torch.int32) for count in inputs.cardinalities]
    return torch.stack(codes, 1) if codes else torch.zeros(rows, 0, dtype=torch.int32), torch.randn(
        rows, inputs.numbers
    )


def answers(content: bytes, feed: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    given = {value.name: feed[value.name].numpy() for value in session.get_inputs()}
    assert given.keys() == feed.keys()
    names = [value.name for value in session.get_outputs()]
    return {
        name: torch.from_numpy(np.asarray(made)) for name, made in zip(names, session.run(None, given), strict=True)
    }


def program(module: nn.Module, arguments: tuple[Any, ...]) -> torch.export.ExportedProgram:
    return trace_model("bottom", module.eval(), arguments)


class Together(nn.Module):
    """Models that read the same, in one program: the exporter takes a second for each, whatever its size."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, first: Any, second: Tensor | None = None) -> Tensor:
        return torch.cat([model(first) if second is None else model(first, second) for model in self.models], dim=1)


class OfOwnColumns(nn.Module):
    """A top model of the label owner's columns alone, where partners have embeddings too."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: Mapping[str, Tensor]) -> Tensor:
        result: Tensor = self.model({OWN: given[OWN]})
        return result


@pytest.mark.usefixtures("_no_source_lines")
@pytest.mark.parametrize("inputs", dict.fromkeys(reads for _, reads in BOTTOM_CASES))
def test_every_bottom_model_gives_the_same_embeddings(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.models.resnet18._BLOCKS", 1)  # a second block of a stage repeats operators of others
    torch.manual_seed(1)
    bottoms = Together([build_bottom(section, inputs) for section, reads in BOTTOM_CASES if reads is inputs])
    content = onnx_bytes(program(bottoms, drawn(inputs, 3)), "bottom", ("codes", "numbers"), "embedding/telco")
    for rows in (1, 300):
        given = drawn(inputs, rows)
        got = answers(content, dict(zip(("codes", "numbers"), given, strict=True)))
        with torch.no_grad():
            torch.testing.assert_close(got["embedding/telco"], bottoms(*given), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("_no_source_lines")
def test_every_top_model_gives_the_same_logits() -> None:
    torch.manual_seed(1)
    tops = Together([build_top(section, WIDTHS, 3, may_leave=("telco-x", "logits")) for section in TOP_CASES])
    made = program(tops, ({name: torch.zeros(3, width) for name, width in WIDTHS.items()},))
    content = onnx_bytes(made, "top", [f"embedding/{name}" for name in WIDTHS], "logits")
    for rows in (1, 9):
        given = {name: torch.randn(rows, width) for name, width in WIDTHS.items()}
        got = answers(content, {f"embedding/{name}": embedding for name, embedding in given.items()})
        with torch.no_grad():
            torch.testing.assert_close(got["logits"], tops(given), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("_no_source_lines")
def test_every_fitted_top_model_gives_the_same_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    fit_briefly(monkeypatch)
    # With one partner there are two models: with it and without. The program of trees is the longest: one model's.
    whole = columns(400)
    given = {name: part for name, part in whole.items() if name != "telco"}
    # The exporter unrolls the levels of the trees: the program of shallow ones has the same operators, sooner.
    trees = top_of(BINARY, [OWN], kind="boosting", max_iter=2, max_leaf_nodes=3)
    others = top_of(BINARY, given, folds=1, candidates=["linear", "network"])
    for each, read in ((trees, {OWN: given[OWN]}), (others, given)):
        fit(each, BINARY, read, labels=labels_of(BINARY, whole))
    parts = {part.kind for each in (trees, others) for head in each.heads for part in head.parts}
    assert parts == {"linear", "network", "trees"}
    model = Together([OfOwnColumns(trees), others])
    made = program(model, ({name: part[:3] for name, part in given.items()},))
    content = onnx_bytes(made, "top", [f"embedding/{name}" for name in given], "logits")
    for rows in (1, 200):
        asked = {name: part[:rows].clone() for name, part in columns(200, seed=1).items() if name in given}
        asked["shop"][0] = torch.nan
        got = answers(content, {f"embedding/{name}": part for name, part in asked.items()})
        with torch.no_grad():
            torch.testing.assert_close(got["logits"], model(asked), rtol=0, atol=1e-4)


def test_every_built_in_top_model_has_a_case() -> None:
    fitted = {name for name, kind in TOPS.items() if kind.is_fitted}
    assert {section["kind"] for section in TOP_CASES} | fitted == TOPS.keys() - {"python"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, RunFolder]:
    return trained(tmp_path_factory.mktemp("run"), {"train.epochs": 1})


def test_the_models_of_a_part_fit_together_and_name_nothing_of_the_machine(
    run: tuple[Any, RunFolder], tmp_path: Path
) -> None:
    part = PartyModel.load(*run, "bank")
    exported = export_part(run[0], part, tmp_path / "bank", onnx=True)
    assert {"bottom.onnx", "top.onnx"} < {*exported.files}
    for path in exported.folder.glob("*.onnx"):
        assert path.stat().st_mode & 0o077 == 0
        content = path.read_bytes()
        # The package's own folder, the module of the class, and the source line that a node comes from.
        assert not [word for word in (b".py", b"cutlayer", b"stack_trace", b"self.") if word in content]
    assert part.encoder is not None
    assert part.bottom is not None
    assert part.top is not None
    given = drawn(part.encoder.columns.inputs, 7)
    made = {f"embedding/{name}": torch.randn(7, 4) for name in ("telco", "shop")}
    made |= answers((exported.folder / "bottom.onnx").read_bytes(), dict(zip(("codes", "numbers"), given, strict=True)))
    with torch.no_grad():
        torch.testing.assert_close(made["embedding/bank"], part.bottom(*given), rtol=0, atol=1e-5)
        logits = answers((exported.folder / "top.onnx").read_bytes(), made)["logits"]
        wanted = part.top({name: made[f"embedding/{name}"] for name in run[0].parties})
    torch.testing.assert_close(logits, wanted, rtol=0, atol=1e-5)


class Stubborn(nn.Module):
    width = 4

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        return numbers if numbers.sum() > 0 else codes.float()


class Inverse(nn.Module):
    """Traced by torch.export; ONNX has no operator for it."""

    width = 4

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        return torch.linalg.pinv(numbers)


@pytest.mark.parametrize("kind", [Stubborn, Inverse])
def test_a_model_without_an_onnx_form_is_refused_before_anything_is_written(
    run: tuple[Any, RunFolder], tmp_path: Path, kind: type[nn.Module]
) -> None:
    part = PartyModel.load(*run, "shop")
    broken = PartyModel(part.record, part.encoder, kind())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"expected a bottom model that ONNX can express.*leave out --onnx"):
        export_part(run[0], broken, tmp_path / "out", onnx=True)
    assert not (tmp_path / "out").exists()


def test_without_the_extra_onnx_is_refused(
    run: tuple[Any, RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setattr("cutlayer.config.extras.find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(ConfigError, match=r"the extra `onnx`, got no onnxscript; pip install 'cutlayer\[onnx\]'"):
        export_part(run[0], PartyModel.load(*run, "shop"), tmp_path / "out", onnx=True)
