"""Which tests are slow, which run first, and where their folders lie: in memory, if there is room, against syncing."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from importlib import import_module
from pathlib import Path

# Before the tensor library is loaded, as in the Makefile: tests that compare bits train with one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from cutlayer.consent import allowed
from tests.forks import Forks
from tests.plugin_packages import see_plugins
from tests.postgres import postgres

__all__ = ["postgres"]

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "src"
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that must be free."""

SLOW = (
    "alignment",
    "attacks/test_audit.py",
    "attacks/test_co_training.py",
    "attacks/test_drawn_labels.py",
    "attacks/test_exact.py",
    "attacks/test_self_training.py",
    "attacks/test_sign_changes.py",
    "audit",
    "benchmarks",
    "channel/test_faults.py",
    "channel/test_grpc.py",
    "channel/test_hostile.py",
    "channel/test_kills.py",
    "channel/test_tls.py",
    "cli",
    "conformance",
    "data/test_block_shuffle.py",
    "data/test_real.py",
    "data/test_sql.py",
    "docs",
    "estimator",
    "jobs",
    "kernels/test_rounded_normal.py",
    "loggers/test_context.py",
    "nvflare/test_engine.py",
    "mutation",
    "nvflare/test_process.py",
    "nvflare/test_tunnel.py",
    "parties",
    "published",
    "protections/test_catalogue.py",
    "protections/test_dimip.py",
    "protections/test_dimip_runs.py",
    "protections/test_label_dp_runs.py",
    "protections/test_past_batches.py",
    "protections/test_repeated_releases.py",
    "protections/test_runs.py",
    "package",
    "report/test_browser.py",
    "report/test_html.py",
    "serving",
    "studies",
    "sweeps/test_shared.py",
    "training",
)
"""Folders and files that train whole jobs, start processes or repeat a test many times: `make quick` skips them."""

FORKING = (
    "batches/test_batches.py",
    "benchmarks/test_row_memory.py",
    "benchmarks/test_scale.py",
    "benchmarks/test_serving.py",
    "benchmarks/test_tables.py",
    "benchmarks/test_training.py",
    "benchmarks/test_year.py",
    "channel/test_faults.py",
    "channel/test_grpc.py",
    "channel/test_kills.py",
    "cli/test_forget.py",
    "cli/test_hostile.py",
    "cli/test_interrupt.py",
    "cli/test_interrupted_reading.py",
    "cli/test_party.py",
    "cli/test_serve.py",
    "cli/test_sweep.py",
    "docs/test_two_machines.py",
    "jobs/test_align.py",
    "jobs/test_keys.py",
    "jobs/test_processes.py",
    "jobs/test_tls_processes.py",
    "loggers/test_context.py",
    "nvflare/test_engine.py",
    "parties/test_grades.py",
    "parties/test_kill.py",
    "parties/test_on_absent.py",
    "parties/test_release_log.py",
    "serving/test_page.py",
    "studies/test_smoke.py",
    "training/test_device.py",
)
"""Files whose tests wait for processes much of the time: two workers run them all, while the other workers compute.

One worker alone would still wait when all else is done.
"""

LONGEST = (
    "conformance/test_conformance.py",
    "serving/test_onnx.py",
    "cli/test_init.py",
    "cli/test_further_labels.py",
    "models/test_top_estimators_top.py",
    "benchmarks/test_label_defences.py",
    "parties/test_lowered_epsilon.py",
    "parties/test_all_rows_by_steps.py",
    "cli/test_verbs.py",
    "estimator/test_sklearn.py",
    "cli/test_start.py",
    "cli/test_recommend.py",
    "docs/test_extending.py",
    "estimator/test_classifier.py",
    "studies/test_malicious.py",
    "sweeps/test_shared.py",
    "report/test_browser.py",
    "training/test_process.py",
    "parties/test_carried_together.py",
    "report/test_html.py",
    "data/test_any_size.py",
    "models/test_private_grade.py",
    "benchmarks/test_grade_attacks.py",
    "benchmarks/test_grades.py",
    "cli/test_exchange.py",
    "channel/test_tls.py",
    "parties/test_predicted_grades.py",
    "parties/test_guard.py",
    "serving/test_graded.py",
    "studies/test_completion.py",
    "cli/test_partner_ids.py",
    "cli/test_consent.py",
    "cli/test_bad_runs.py",
    "cli/test_damage.py",
    "audit/test_embedding_canaries.py",
    "nvflare/test_tunnel.py",
    "test_workers.py",
    "parties/test_limits_of_other_columns.py",
    "audit/test_features.py",
    "training/test_all_runs.py",
    "jobs/test_courier.py",
    "channel/test_hostile.py",
    "audit/test_history.py",
    "data/test_sources.py",
    "package/test_package.py",
    "audit/test_grade_influence.py",
    "report/test_default_job.py",
    "docs/test_examples.py",
    "conformance/test_feature_defences.py",
    "protections/test_marvell.py",
    "models/test_top_estimators_choice.py",
    "audit/test_grade_canaries.py",
    "training/test_departures.py",
)
"""Files whose tests take more than five seconds, the longest first: workers begin with them, and none ends with one."""

BRIEFER = (
    "batches",
    "benchmarks",
    "cli",
    "docs",
    "estimator",
    "jobs",
    "loggers",
    "parties",
    "report",
    "serving",
    "sweeps",
)
"""Folders of `BRIEF` in which no result of a fitted model is a subject either: folds and resamples are fewer."""

BRIEF = (*BRIEFER, "accounting", "alignment", "audit", "protections", "published", "studies", "training")
"""Folders in which fitted models are no subject: they try fewer strengths of the regularisation, trees and steps.

Nor are the repetitions of an audit, but in `audit`, and the masks of ids, but in `alignment`.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--forks`, for `make test`."""
    parser.addoption("--forks", type=int, default=0, help="number of processes that run tests, forked after collection")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the root of all temporary folders, unless the caller has, and let SIGHUP arrive, which `nohup` ignores."""
    gc.disable()  # until all is imported, of which nothing is garbage
    see_plugins()
    # Defences that tests of many folders try beside the package's own; what asks for consent has tests of its own.
    consent = ExitStack()
    consent.enter_context(allowed("cutlayer_published"))
    config.add_cleanup(consent.close)
    config.pluginmanager.register(Examples())
    if count := config.getoption("forks"):
        config.pluginmanager.register(Forks(count, together))
        import_module("skops.io")  # looks for each of NumPy's functions in all modules, of which there are few by now
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # No test may depend on the time of an example. Every run draws others, so that each needs few of the default 100.
    settings.register_profile("busy machine", settings(), deadline=None, max_examples=30)
    settings.load_profile("busy machine")
    # Every worker reads the constants of the modules under test, to try them, and not those of studies and benchmarks.
    providers.is_local_module_file = lambda path: path.startswith(str(SOURCES))
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
        os.environ.setdefault("TMPDIR", str(MEMORY))  # of estimators, whose runs lie in folders of their own
        tempfile.tempdir = None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m "not slow"` does not even import the slow tests, which takes longer than many of the others run."""
    return True if config.getoption("markexpr") == "not slow" and is_slow(collection_path) else None


class Examples:
    """Of `src` and `studies` only the files with examples are imported; tests have none."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """To import every file, and to look for examples in it, takes three seconds in every worker."""
        nodes = yield
        if file_path.is_relative_to(TESTS) or ">>>" not in file_path.read_text(errors="ignore"):
            return [node for node in nodes if type(node) is pytest.Module]
        return nodes


def together(item: pytest.Item) -> str:
    """What tests have in common that one process runs: their file, and those of `FORKING` are as two."""
    file = item.nodeid.partition("::")[0]
    name = file.removeprefix("tests/")
    return f"forking {FORKING.index(name) % 2}" if name in FORKING else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and put the files of the workers that fork first, then the longest."""
    for item in items:
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)
    places = {TESTS / name: index for index, name in enumerate((*FORKING, *LONGEST))}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="module", autouse=True)
def _briefly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Most of a small run's time goes into a choice of strengths, which `models` tests, its audit, the start of an
    engine for each of its tables, which `data` tests, and the check of its bottom models, which `models` tests too.
    """

    def is_in(folders: Iterable[str]) -> bool:
        return any(request.path.is_relative_to(TESTS / folder) for folder in folders)

    if not is_in(BRIEF):
        yield
        return
    from tests.alignment.quick_masks import mask_quickly
    from tests.cli.jobs import audit_briefly, share_engine, write_jobs_once
    from tests.models.estimator_rows import few_repetitions, fit_briefly
    from tests.parties.row_checks import check_each_architecture_once
    from tests.read_once import read_files_once

    with pytest.MonkeyPatch.context() as patched:
        fit_briefly(patched)
        share_engine(patched)
        read_files_once(patched)
        write_jobs_once(patched)
        check_each_architecture_once(patched)
        if is_in(BRIEFER):
            few_repetitions(patched)
        if not is_in(["audit"]):
            audit_briefly(patched)
        if not is_in(["alignment"]):
            mask_quickly(patched)
        yield


def pytest_collection_finish(session: pytest.Session) -> None:
    """Hide what is imported from the garbage collector, of which a full one takes half a second, and call it less.

    What tests import when they run, each process that is forked would import anew.
    """
    if session.config.getoption("forks") and not session.config.getoption("collectonly"):
        from tests.parties.processes import IMPORTED
        from tests.prepared import prepare

        for name in (*IMPORTED, "torch._dynamo"):
            with suppress(ImportError):
                import_module(name)
        prepare()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_runtest_setup() -> None:
    """Initial weights drawn without a seed are the same in every run: of few hidden units all may be inactive."""
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(9973)  # no seed of a test, whose numbers would be the same


@cache  # asked once for each of 7,000 tests
def is_slow(path: Path) -> bool:
    """Whether a folder or file is one of `SLOW`, or is in one."""
    folders = [str(part.relative_to(TESTS)) for part in (path, *path.parents) if part.is_relative_to(TESTS)]
    return any(folder in SLOW for folder in folders)
