"""A hostile archive of a fitted estimator: it runs nothing, opens nothing, and is not unpacked."""

from __future__ import annotations

import io
import json
import operator
import subprocess
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils._testing import check_output

from cutlayer.config import validated
from cutlayer.config.job import Job
from cutlayer.consent import allowed
from cutlayer.errors import CutlayerError
from cutlayer.models.top_estimators.archive import check_archive
from cutlayer.models.top_estimators.estimator import fit_estimator
from cutlayer.serving.models import TrainedModels
from cutlayer.storage.tensor_file import read_tensors, write_tensors
from cutlayer.training.folder import RunFolder
from tests.models.estimator_rows import rows_of
from tests.parties.runs import ACTIVE, run
from tests.parties.test_fitted_top import GIVEN, raw

# The package is looked for and not imported, which takes two seconds in every worker.
pytestmark = pytest.mark.skipif(find_spec("skops") is None, reason="skops is not installed (extra sklearn)")
LIBRARY = "sklearn.linear_model"
LINEAR = {"kind": "sklearn", "path": f"{LIBRARY}:LogisticRegression"}
DRAW = np.random.default_rng(1)
ROWS = rows_of(DRAW.normal(size=(40, 2)), np.arange(40) % 2, 2)


def dumped(model: Any) -> bytes:
    """The archive of a model."""
    from skops.io import dumps

    content: bytes = dumps(model)
    return content


class Loaded:
    """A class of a module that was not allowed."""


def load(content: bytes, *more: str) -> None:
    """Load an archive in place of that of a fitted model, and predict."""
    with allowed(LIBRARY, *more):
        part = fit_estimator(LogisticRegression, LINEAR["path"], {}, ROWS, 0)
        state = part.state_dict() | {"content": torch.frombuffer(bytearray(content), dtype=torch.uint8)}
        part.load_state_dict(state)
        part.predicted(ROWS)


def commanded(command: str) -> Any:
    """An estimator whose prediction is a command of the shell."""
    dummy = DummyClassifier(strategy="constant", constant=command).fit([[0]], [command])
    call = FunctionTransformer(check_output, kw_args={"shell": True})
    return make_pipeline(FunctionTransformer(dummy.predict), FunctionTransformer(operator.itemgetter(0)), call, dummy)


def predict(job: Job, folder: Path) -> None:
    models = TrainedModels.load(job, RunFolder(folder))
    models.top({name: torch.zeros(3, width) for name, width in models.widths.items()})


def test_a_run_folder_with_a_command_runs_nothing(tmp_path: Path) -> None:
    job = validated(Job, raw(top=LINEAR), "")
    with allowed(LIBRARY):
        run(job, GIVEN, tmp_path)
    hostile = dumped(commanded(f"touch {tmp_path / 'ran'}"))
    for path in (tmp_path / "checkpoint" / ACTIVE).glob("*.safetensors"):
        tensors, header = read_tensors(path)
        for name in [name for name in tensors if name.endswith(".content")]:
            tensors[name] = torch.frombuffer(bytearray(hostile), dtype=torch.uint8)
        write_tensors(path, tensors, header)
    with allowed(LIBRARY), pytest.raises(CutlayerError, match=r"got a part of type sklearn\."):
        predict(job, tmp_path)
    assert not (tmp_path / "ran").exists()


def model(**attributes: Any) -> LogisticRegression:
    made = LogisticRegression().fit(ROWS.numbers, ROWS.targets)
    vars(made).update(attributes)
    return made


@pytest.mark.parametrize(
    "value",
    [
        subprocess.run,
        check_output,
        partial(subprocess.run, ["true"]),
        DummyClassifier().fit,
        operator.methodcaller("predict"),
        np.sum,
        np.add,
        print,
        Loaded(),
        Loaded,
        Path("file"),
        sparse.csr_matrix(np.eye(2)),
        b"bytes",
        CountVectorizer(input="filename"),
        FunctionTransformer(),
        DecisionTreeClassifier().fit(ROWS.numbers, ROWS.targets),
        np.random.default_rng(1),
        np.ma.MaskedArray([1]),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
@pytest.mark.parametrize("library", [LIBRARY, "sklearn"])
def test_a_part_of_another_type_is_refused(value: object, library: str) -> None:
    with pytest.raises(CutlayerError, match="an estimator of arrays and of classes that may be stored, got a part of"):
        load(dumped(model(C=value)), library)


def edited(change: Callable[[dict[str, Any], dict[str, bytes]], Any], compression: int = ZIP_STORED) -> bytes:
    """An archive of a fitted model with another schema, or other files."""
    with ZipFile(io.BytesIO(dumped(model(first=np.ones(3), second=np.ones(4))))) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(files.pop("schema.json"))
    schema = change(schema, files) or schema
    stream = io.BytesIO()
    with ZipFile(stream, "w", compression=compression) as archive:
        for name, content in {**files, "schema.json": json.dumps(schema).encode()}.items():
            archive.writestr(name, content)
    return stream.getvalue()


def attributes(schema: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = schema["content"]["content"]
    return content


def renamed(module: str, name: str) -> Callable[..., None]:
    return lambda schema, _: schema.update({"__module__": module, "__class__": name})


def one_file_twice(schema: dict[str, Any], _: object) -> None:
    attributes(schema)["second"]["file"] = attributes(schema)["first"]["file"]


def without_loader(schema: dict[str, Any], _: object) -> None:
    attributes(schema)["second"] = {"__id__": attributes(schema)["first"]["__id__"]}


def one_id_twice(schema: dict[str, Any], _: object) -> None:
    attributes(schema)["C"]["__id__"] = schema["__id__"]


def of_no_id(schema: dict[str, Any], _: object) -> None:
    for name in ("first", "second"):
        attributes(schema)[name]["__id__"] = 0


def packed_array(schema: dict[str, Any], files: dict[str, bytes]) -> None:
    stream = io.BytesIO()
    np.savez_compressed(stream, np.zeros(10**6))
    files[attributes(schema)["first"]["file"]] = stream.getvalue()


@pytest.mark.parametrize(
    "made",
    [
        lambda: b"PK\x03\x04",
        lambda: edited(lambda *_: [[]]),
        lambda: edited(lambda *_: None, ZIP_DEFLATED),
        lambda: edited(one_file_twice),
        lambda: edited(without_loader),
        lambda: edited(one_id_twice),
        lambda: edited(of_no_id),
        lambda: edited(packed_array),
        lambda: edited(renamed("sklearn.linear_model._base", "BaseEstimator")),  # which it only imports
        lambda: edited(renamed("sklearn.linear_model._logistic", "_logistic_regression_path")),
        lambda: edited(renamed("sklearn.linear_model._ridge", "Ridge")),
        lambda: edited(lambda schema, _: attributes(schema)["C"].update(content="[" * 100_000)),
        lambda: edited(lambda schema, _: schema.update(content=None)),
    ],
)
def test_a_malformed_archive_is_an_error_of_this_package(made: Callable[[], bytes]) -> None:
    """Made when the test runs: every worker reads this file, and skops takes seconds to import."""
    content = made()
    with pytest.raises(CutlayerError):
        load(content)


def test_a_class_that_a_module_only_imports_is_refused_before_anything_is_made() -> None:
    with pytest.raises(CutlayerError, match="classes that may be stored"):
        check_archive(edited(renamed("sklearn.linear_model._base", "BaseEstimator")))
    check_archive(edited(lambda *_: None))


def test_the_archives_above_are_as_good_as_their_change() -> None:
    load(edited(lambda *_: None))
    assert isinstance(model(), BaseEstimator)


def test_what_is_no_archive_says_what_to_do() -> None:
    with pytest.raises(CutlayerError, match="got other bytes; train the model again"):
        check_archive(b"lightgbm a.b:C")
