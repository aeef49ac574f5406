"""Which tests are slow, which run first, and where their folders lie: in memory, if there is room, against syncing."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from functools import cache
from pathlib import Path

# Before the tensor library is loaded, as in the Makefile: tests that compare bits train with one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from tests.postgres import postgres

__all__ = ["postgres"]

MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that must be free."""

SLOW = (
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
    "mutation",
    "nvflare/test_process.py",
    "nvflare/test_tunnel.py",
    "parties",
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

LONGEST = (
    "conformance/test_conformance.py",
    "benchmarks/test_training.py",
    "benchmarks/test_label_defences.py",
    "cli/test_verbs.py",
    "docs/test_links.py",
    "estimator/test_sklearn.py",
    "parties/test_resume.py",
    "audit/test_peers.py",
    "studies/test_completion.py",
    "nvflare/test_engine.py",
    "docs/test_examples.py",
    "parties/test_release_log.py",
    "training/test_large_tables.py",
    "parties/test_warmup.py",
    "cli/test_interrupt.py",
    "estimator/test_classifier.py",
    "serving/test_onnx.py",
    "jobs/test_team.py",
    "cli/test_recommend.py",
    "audit/test_features.py",
    "training/test_images.py",
    "jobs/test_processes.py",
    "cli/test_sweep.py",
    "parties/test_once.py",
    "audit/test_completion.py",
    "training/test_process.py",
    "parties/test_checkpoints_within.py",
    "parties/test_on_absent.py",
    "report/test_html.py",
    "sweeps/test_shared.py",
    "training/test_references.py",
    "audit/test_run_audits.py",
    "studies/test_smoke.py",
    "jobs/test_tls_processes.py",
    "estimator/test_protected.py",
    "package/test_package.py",
    "cli/test_damage.py",
    "channel/test_grpc.py",
    "audit/test_embedding_canaries.py",
    "attacks/test_audit.py",
    "benchmarks/test_serving.py",
    "cli/test_bad_runs.py",
    "channel/test_hostile.py",
    "audit/test_history.py",
    "parties/test_checkpoints.py",
    "training/test_device.py",
    "channel/test_faults.py",
)
"""The files whose tests take longest, the longest first: workers begin with them, so that none ends alone with one."""


def pytest_configure() -> None:
    """Choose the root of all temporary folders, unless the caller has, and let SIGHUP arrive, which `nohup` ignores."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    settings.register_profile("busy machine", settings(), deadline=None)  # no test may depend on the time of an example
    settings.load_profile("busy machine")
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m "not slow"` does not even import the slow tests, which takes longer than many of the others run."""
    return True if config.getoption("markexpr") == "not slow" and is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and put the longest files first."""
    for item in items:
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)
    places = {Path(__file__).parent / name: index for index, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """Hide what is imported from the garbage collector: a full one takes half a second."""
    gc.collect()
    gc.freeze()


@cache  # asked once for each of 7,000 tests
def is_slow(path: Path) -> bool:
    """Whether a folder or file is one of `SLOW`, or is in one."""
    return any(path.is_relative_to(Path(__file__).parent / slow) for slow in SLOW)
