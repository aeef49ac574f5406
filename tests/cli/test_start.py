"""The command line answers `--help` at once: what a verb computes with is imported when it runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cli.jobs import JOB, Place, as_yaml, changed, write_tables
from tests.cli.test_options import ALL_VERBS

HEAVY = "cryptography dp_accounting duckdb fsspec grpc jinja2 numpy optuna pandas pyarrow ruamel scipy sklearn torch"
HEAVY += " sqlalchemy cutlayer.config.base"  # the models of a job, which are made when they are imported
COMPUTING = ["fastapi", "grpc", "onnx", "optuna", "scipy.stats", "sklearn", "torch", "uvicorn"]
COLUMNS = ["numpy", "pyarrow"]
CALLS = """
import contextlib, io, json, os, sys

def call(folder, arguments):
    os.chdir(folder)
    sys.argv[1:] = arguments
    code, out, error = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return code, out.getvalue(), error.getvalue(), [*sys.modules]

def main():
    if sys.argv[1] == "-c":
        return exec(sys.argv[2], {})
    from cutlayer.__main__ import main
    main()

import cutlayer
print(json.dumps([*sys.modules]), flush=True)
for line in sys.stdin:
    print(json.dumps(call(*json.loads(line))), flush=True)
"""


@dataclass(frozen=True)
class Called:
    """What a call of the command line printed, and all that its process had loaded when it ended."""

    code: int
    out: str
    error: str
    modules: frozenset[str]


class Calling:
    """A process of its own that has imported `cutlayer` alone, and calls the command line."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CALLS],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.first = frozenset(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def __call__(self, folder: Path, *arguments: object) -> Called:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(folder), [*map(str, arguments)]]) + "\n")
        self._process.stdin.flush()
        code, out, error, modules = self._answer()
        return Called(code, out, error, frozenset(modules))

    def end(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


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
LISTING = (
    "list attacks",
    "list protections",
    "list models",
    "schema",
    "schema report",
    "keys list",
    "ledger",
    "init .",
)
SEARCHES = ("sweep missing.yaml --vary train.seed=1,2", "recommend missing.yaml --max-leak 0.6")

PEAK = """
import re
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""
HIDDEN = """
import sys
__name__ = "cutlayer.data"
import pyarrow as pa
table = pa.table({"a": pa.array([pa.scalar(1).as_py()])})
print("pandas" in sys.modules)
__name__ = "users.model"
import pandas as pd
frame = table.to_pandas()
print(type(frame) is pd.DataFrame and pa.Table.from_pandas(frame).equals(table))
"""
AS_MODULE = """
import runpy, sys
sys.modules.pop("cutlayer.__main__", None)  # of the process itself: to run it twice is warned of
sys.argv[:] = ["cutlayer", "rnu"]
runpy.run_module("cutlayer", run_name="__main__")
"""
UNREAD = """
import sys
from threading import Thread
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
print(metrics.label_ranking_average_precision_score([[1, 0]], [[0.5, 0.2]]))
"""


@dataclass(frozen=True)
class Loaded:
    """What `import cutlayer` loads, and calls of one process by name, in the order in which each may load more."""

    first: frozenset[str]
    calls: Mapping[str, Called]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, finished_once: Path) -> Loaded:
    folder = tmp_path_factory.mktemp("start")
    write_tables(folder)
    shutil.copytree(finished_once, folder / "finished")
    (folder / "job.yaml").write_text(as_yaml(JOB))
    process, done = Calling(), {}

    def call(name: str, *arguments: object) -> None:
        done[name] = process(folder, *arguments)

    for verb in ("", *ALL_VERBS):
        call(f"{verb} --help", *verb.split(), "--help")
    for verb in ("run", "check"):
        call(f"{verb} missing.yaml", verb, "missing.yaml")
    call(AS_MODULE, "-c", AS_MODULE)
    for index, (path, value, _) in enumerate(FAULTS):
        file = folder / f"{index}.yaml"
        file.write_text(as_yaml(changed(JOB, {path: value})))
        for verb in ("run", "check"):
            call(f"{verb} {index}", verb, file)
    training = ("check job.yaml --json", "predict finished --out scores.csv", "run job.yaml")
    for line in (*LISTING, *SEARCHES, "report finished", *training):
        call(line, *line.split())
    for code in (*([PEAK] if sys.platform.startswith("linux") else []), HIDDEN, UNREAD):
        call(code, "-c", code)
    process.end()
    return Loaded(process.first, done)


def test_help_imports_no_heavy_module(loaded: Loaded) -> None:
    assert not loaded.first & {*HEAVY.split()}
    for verb in ("", *ALL_VERBS):
        shown = loaded.calls[f"{verb} --help"]
        assert shown.code == 0, verb
        assert "Usage" in shown.out, verb
        heavy = sorted(shown.modules & {*HEAVY.split()})
        assert not heavy, f"cutlayer {verb} --help imports {heavy}: import them inside the function that runs the verb"
        assert verb or "pydantic" not in shown.modules  # without a verb nothing is validated


def test_a_file_that_is_missing_is_named_before_anything_is_loaded(loaded: Loaded) -> None:
    for name in ("run missing.yaml", "check missing.yaml", *SEARCHES):
        missing = loaded.calls[name]
        assert missing.code == 2, name
        assert "cannot be read" in missing.error, name
        assert not missing.modules & {*COMPUTING, *(COLUMNS if name not in SEARCHES else ())}, name


def test_a_fault_of_a_job_or_header_is_named_before_pytorch_is_loaded(loaded: Loaded) -> None:
    for index, (path, _, expected) in enumerate(FAULTS):
        for verb in ("run", "check"):
            faulty = loaded.calls[f"{verb} {index}"]
            assert faulty.code == 2, (verb, path)
            assert expected in faulty.error, (verb, path)
            assert not faulty.modules & {*COMPUTING}, (verb, path)


def test_verbs_that_compute_nothing_load_no_pytorch(loaded: Loaded) -> None:
    for line in LISTING:
        listed = loaded.calls[line]
        assert "a fault of cutlayer itself" not in listed.error, line
        heavy = sorted(listed.modules & {*COMPUTING})
        assert not heavy, f"cutlayer {line} imports {heavy}: a file of a catalogue takes PyTorch from cutlayer.lazy"


def test_a_check_loads_pytorch_alone(loaded: Loaded) -> None:
    checked = loaded.calls["check job.yaml --json"]
    assert checked.code == 0, checked.error
    assert {*COMPUTING, "pandas", "scipy.linalg", "torch._dynamo"} & checked.modules == {"torch"}


def test_a_run_loads_neither_the_compiler_nor_what_it_does_not_use(loaded: Loaded) -> None:
    ran = loaded.calls["run job.yaml"]
    assert ran.code == 0, ran.error
    assert "torch.optim.adam" in ran.modules
    assert not ran.modules & {"fastapi", "grpc", "optuna", "pandas", "torch._dynamo", "torch._inductor", "uvicorn"}
    assert not ran.modules & {"numpy.f2py.f2py2e", "scipy.stats._stats_py"}  # the code behind what both name


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of a process is in a file of Linux alone")
def test_the_forecast_of_a_small_run_is_within_thirty_percent_of_the_peak(loaded: Loaded) -> None:
    """It is that of the libraries; what rows add is in `test_verbs`."""
    forecast = json.loads(loaded.calls["check job.yaml --json"].out)["memory_bytes"]
    peak = int(loaded.calls[PEAK].out) * 1024
    assert 0.7 * peak < forecast < 1.3 * peak


def test_a_prediction_loads_no_compiler_linear_algebra_or_pandas(loaded: Loaded) -> None:
    predicted = loaded.calls["predict finished --out scores.csv"]
    assert predicted.code == 0, predicted.error
    assert not predicted.modules & {"pandas", "scipy.linalg", "sympy", "torch._dynamo", "torch._inductor"}


def test_a_report_computes_nothing(loaded: Loaded) -> None:
    report = loaded.calls["report finished"]
    assert report.code == 0, report.error
    assert not report.modules & {*COMPUTING}


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


def test_python_m_cutlayer_is_cutlayer(loaded: Loaded, place: Place) -> None:
    here, as_module = place.call("rnu"), loaded.calls[AS_MODULE]
    assert (as_module.code, as_module.out, as_module.error.split()) == (here.code, here.out, here.err.split())
    assert (here.code, "No such command 'rnu'" in here.err) == (2, True)


def test_pyarrow_does_without_pandas_which_others_import(loaded: Loaded) -> None:
    done = loaded.calls[HIDDEN]
    assert done.out.split() == ["False", "True"], done.error


def test_statistics_of_scipy_are_loaded_when_something_of_them_is_used(loaded: Loaded) -> None:
    lines = ["False False", "False", "True True module", "True False", "True True", "1.0"]
    done = loaded.calls[UNREAD]
    assert done.out.splitlines() == lines, done.error
