"""The command line answers `--help` at once: what a verb computes with is imported when it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.cli.jobs import JOB, as_yaml, changed
from tests.cli.test_options import ALL_VERBS

HEAVY = "cryptography dp_accounting duckdb fsspec grpc jinja2 numpy optuna pandas pyarrow ruamel scipy sklearn torch"
HEAVY += " cutlayer.config.base"  # the models of a job, which are made when they are imported
START = f"""
import contextlib, io, sys

def check(after):
    loaded = set({HEAVY.split()}) & set(sys.modules)
    assert not loaded, f"{{after}} imports {{sorted(loaded)}}; import them inside the function that runs the verb"

import cutlayer
check("import cutlayer")
from cutlayer.cli.app import _run
for line in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert _run([*line.split(), "--help"]) == 0, line
    assert "Usage" in out.getvalue(), line
    check(f"cutlayer {{line}} --help")
    assert line or "pydantic" not in sys.modules, "without a verb nothing is validated"
"""


def test_help_imports_no_heavy_module() -> None:
    seen = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", START, "", *ALL_VERBS], check=True, env=seen)


COMPUTING = ["fastapi", "grpc", "onnx", "optuna", "scipy.stats", "sklearn", "torch", "uvicorn"]
COLUMNS = ["numpy", "pyarrow"]
FORKS = """
import contextlib, io, json, os, sys

def call(arguments):
    sys.argv[1:] = arguments
    code, error = 0, io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return code, error.getvalue(), [*sys.modules]

from cutlayer.__main__ import main
print(json.dumps(call(["check", "missing.yaml"])), flush=True)
for line in sys.stdin:
    folder, calls = json.loads(line)
    if not (child := os.fork()):
        try:
            os.chdir(folder)
            print(json.dumps([call(arguments) for arguments in calls]), flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def light():
    """A process that has run `check missing.yaml`, which loads nothing heavy: others are forked from it in no time."""
    line = [sys.executable, "-c", FORKS]
    with subprocess.Popen(line, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        code, error, modules = json.loads(process.stdout.readline())
        assert code == 2
        assert "cannot be read" in error
        assert not {*modules} & {*COMPUTING, *COLUMNS}
        yield process
        process.stdin.close()
        assert process.wait() == 0


@pytest.fixture
def loaded_by_fork(place, light):
    """Exit code, error and loaded modules of calls, one after the other in one process, forked from a light one."""

    def run(*calls: tuple[object, ...]) -> list[tuple[int, str, set[str]]]:
        light.stdin.write(json.dumps([str(place.folder), [[*map(str, call)] for call in calls]]) + "\n")
        light.stdin.flush()
        return [(code, error, {*modules}) for code, error, modules in json.loads(light.stdout.readline())]

    return run


def test_a_file_that_is_missing_is_named_before_anything_is_loaded(loaded_by_fork):
    calls = (
        ("run", "missing.yaml"),
        ("check", "missing.yaml"),
        ("sweep", "missing.yaml", "--vary", "train.seed=1,2"),
        ("recommend", "missing.yaml", "--max-leak", "0.6"),
    )
    for (verb, *_), (code, error, modules) in zip(calls, loaded_by_fork(*calls), strict=True):
        assert code == 2, verb
        assert "cannot be read" in error, verb
        assert not modules & {*COMPUTING, *(COLUMNS if verb in ("run", "check") else ())}, verb


FAULTS = [
    ("trian", {}, "did you mean 'train'?"),
    ("parties.bank.privacy", {"max_nrom": {}}, "did you mean 'max_norm'?"),
    ("parties.bank.privacy", {"label_dp": {"epsilon": 1.0}}, "privacy.label_dp"),
    ("parties.bank.audit.attacks", ["nrom"], "did you mean 'norm'?"),
    ("model.bottom", {"kind": "mlp", "hiden": [4]}, "did you mean 'hidden'?"),
    ("model.top", {"kind": "mpl"}, "did you mean 'mlp'?"),
    ("parties.telco.id", "ide", "did you mean 'id'?"),
    ("parties.bank.label", "defalt", "did you mean 'default'?"),
    ("parties.telco.features", {"exclude": ["absent"]}, "absent"),
]


def test_a_fault_of_a_job_or_header_is_named_before_pytorch_is_loaded(place, loaded_by_fork):
    calls = []
    for index, (path, value, _) in enumerate(FAULTS):
        file = place.folder / f"{index}.yaml"
        file.write_text(as_yaml(changed(JOB, {path: value})))
        calls += [("run", file), ("check", file)]
    for index, (code, error, modules) in enumerate(loaded_by_fork(*calls)):
        path, _, expected = FAULTS[index // 2]
        assert code == 2, (calls[index], path)
        assert expected in error, (calls[index], path)
        assert not modules & {*COMPUTING}, (calls[index], path)


def test_verbs_that_compute_nothing_load_no_pytorch(loaded_by_fork):
    lines = (
        "list attacks",
        "list protections",
        "list models",
        "schema",
        "schema report",
        "keys list",
        "ledger",
        "init .",
    )
    for line, (_, error, modules) in zip(lines, loaded_by_fork(*map(str.split, lines)), strict=True):
        assert "a fault of cutlayer itself" not in error, line
        heavy = sorted(modules & {*COMPUTING})
        assert not heavy, f"cutlayer {line} imports {heavy}: a file of a catalogue takes PyTorch from cutlayer.lazy"


def test_a_check_loads_pytorch_alone_and_a_run_neither_the_compiler_nor_what_it_does_not_use(place, loaded_by_fork):
    """A check and a run in one process, a report and a prediction in another: each loads more."""
    checked, (code, error, modules) = loaded_by_fork(("check", place.file), ("run", place.file))
    assert checked[0] == 0, checked[1]
    assert {*COMPUTING, "pandas", "scipy.linalg", "torch._dynamo"} & checked[2] == {"torch"}
    assert code == 0, error
    assert "torch.optim.adam" in modules
    assert not modules & {"fastapi", "grpc", "optuna", "pandas", "torch._dynamo", "torch._inductor", "uvicorn"}
    assert not modules & {"numpy.f2py.f2py2e", "scipy.stats._stats_py"}  # the code behind what SciPy and NumPy name
    predict = ("predict", place.run_folder, "--out", place.folder / "scores.csv")
    (code, error, modules), predicted = loaded_by_fork(("report", place.run_folder), predict)
    assert code == 0, error
    assert not modules & {*COMPUTING}
    code, error, modules = predicted
    assert code == 0, error
    assert not modules & {"pandas", "scipy.linalg", "sympy", "torch._dynamo", "torch._inductor"}


@pytest.mark.parametrize("package", ["cutlayer", "cutlayer.channel", "cutlayer.config"])
def test_names_on_first_use_are_listed_and_are_not_those_of_modules(package: str) -> None:
    module = import_module(package)
    assert {*module.__all__} <= {*dir(module)}
    assert [getattr(module, name) for name in module.__all__]
    assert not [name for name in module.__all__ if find_spec(f"{package}.{name}")]
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'absent'"):
        _ = module.absent


def test_all_names_of_a_package_are_taken_at_once_and_its_modules_are_attributes() -> None:
    """In a process of its own, which has imported no module of the package."""
    code = "import cutlayer.config as c; job = c.job; from cutlayer.config import *; "
    code += "print(job.Job is Job is c.Job, {*c.__all__} < {*globals()}, 'TYPE_CHECKING' in globals())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True", "False"]


HIDDEN = """
import sys
from cutlayer.training.process import lighten_imports

lighten_imports()
__name__ = "cutlayer.data"
import pyarrow as pa
table = pa.table({"a": pa.array([pa.scalar(1).as_py()])})
print("pandas" in sys.modules)
__name__ = "users.model"
import pandas as pd
frame = table.to_pandas()
print(type(frame) is pd.DataFrame and pa.Table.from_pandas(frame).equals(table))
"""


def test_pyarrow_does_without_pandas_which_others_import() -> None:
    done = subprocess.run([sys.executable, "-c", HIDDEN], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"]


UNREAD = """
import os, sys
from threading import Thread
from cutlayer.training.process import lighten_imports

lighten_imports()
import scipy.stats
from sklearn import metrics
from sklearn.ensemble import HistGradientBoostingClassifier
print("scipy.stats._stats_py" in sys.modules, hasattr(scipy.stats, "__wrapped__"))
__name__ = "sklearn.of_a_test"
from scipy.stats import rankdata
print("scipy.stats._stats_py" in sys.modules)
found = []
threads = [Thread(target=lambda: found.append(scipy.stats.norm.cdf(0.0))) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(found == [0.5] * 4, "scipy.stats._stats_py" in sys.modules, type(scipy.stats).__name__)
print(list(rankdata([3, 1, 1])) == [3.0, 1.5, 1.5], hasattr(scipy.stats, "absent"))
from scipy.stats import *
print(pearsonr is scipy.stats.pearsonr, scipy.stats.mstats.gmean([2, 8]) == 4)
print(metrics.label_ranking_average_precision_score([[1, 0]], [[0.5, 0.2]]), flush=True)
os._exit(0)  # which spares taking down a thousand modules one by one
"""


def test_statistics_of_scipy_are_loaded_when_something_of_them_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", UNREAD], check=True, capture_output=True, text=True)
    lines = ["False False", "False", "True True module", "True False", "True True", "1.0"]
    assert done.stdout.splitlines() == lines
