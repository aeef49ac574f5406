"""Process settings of a run: threads, random state, repeatable sums, reuse of freed memory."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from cutlayer.lazy import called_on_first_use

if TYPE_CHECKING:
    import torch

LARGE_BATCH = 2048
"""Minimum number of rows of a step that is divided among threads."""

# Of `mallopt` in glibc's malloc.h: what the top of the heap may hold free, and how large a block of the heap may be.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MAX_FREE_BYTES = 256 * 2**20
_MAX_BLOCK_BYTES = 32 * 2**20  # what the C library admits
_WORKSPACE_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
_YOUNG_THRESHOLD = 10_000
"""New objects until the youngest are searched for unused cycles."""
_MIDDLE_THRESHOLD = 50
"""Searches of the youngest until those of middle age are searched too."""
_OLD_THRESHOLD = 10
"""Searches of those of middle age until the oldest are searched too."""


@contextmanager
def run_threads(
    wanted: Literal["auto"] | int, batch_size: Literal["auto"] | int, processes: int = 1, *, scipy: bool = True
) -> Iterator[int]:
    """Set the threads of the tensor library and of `one_blas_thread` for a run; restore them and the random state.

    More threads than cores, in one process or in several, slow training to a few percent of its speed: workers that
    wait for each other wait busily, unless `OMP_WAIT_POLICY` was PASSIVE when the tensor library was loaded. The
    command line sets that. A process that does not, such as a notebook, gets one thread from `auto`.

    Args:
        wanted: Number of threads, a bound of `work_threads` too. `auto` is one thread for batches below `LARGE_BATCH`
            rows; for larger ones it divides the cores that this process may use among `processes`, if waiting workers
            sleep.
        batch_size: Rows of a step; `auto` is below `LARGE_BATCH`.
        processes: Number of processes of the job on this machine, one for each party.
        scipy: Whether SciPy will be used; it is imported if so.

    Yields:
        Number of threads of the run.
    """
    import torch  # here: the command line uses the other half of this file before it loads the tensor library

    from cutlayer.workers import thread_limit, usable_cores

    sleeping = os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE"
    cores = usable_cores() if batch_size != "auto" and batch_size >= LARGE_BATCH and sleeping else 1
    threads = max(1, cores // processes) if wanted == "auto" else wanted
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with (
            thread_limit(max(1, usable_cores() // processes) if wanted == "auto" else wanted),
            one_blas_thread(scipy=scipy),
            torch.random.fork_rng(devices=[]),
        ):
            yield threads
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_blas_thread(*, scipy: bool = True) -> Iterator[None]:
    """Have the linear algebra of NumPy and SciPy use one thread for a while.

    Their copy of OpenBLAS waits busily for its other threads, whatever `OMP_WAIT_POLICY` is. Where more processes want
    to run than there are cores, such a thread is often not running: a step of L-BFGS on 200 rows, as attacks with known
    labels take by the thousand, took 6.7 ms instead of 0.02. The matrices here are too small for two threads to help.
    The tensor library has linear algebra of its own.

    Args:
        scipy: Whether SciPy is imported, since the limit holds for libraries that are loaded by now.
    """
    if scipy:
        import_module("scipy.linalg")
    with (_openblas_with_scipy if "scipy.linalg" in sys.modules else _openblas)().limit(limits=1):
        yield


def _openblas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(prefix="libscipy_openblas")


# Both copies of OpenBLAS are loaded, and to look for them among all libraries takes milliseconds.
_openblas_with_scipy = cache(_openblas)


@contextmanager
def repeatable_kernels(devices: Iterable[torch.device]) -> Iterator[None]:
    """Have GPUs add up in the same order every time, so that a resumed run equals one that was not interrupted.

    Operations that have no such form on a GPU warn and go on. Nothing is done, and nothing needs to be, without a GPU.

    Args:
        devices: Devices of the parties in this process.
    """
    if all(device.type == "cpu" for device in devices):
        yield
        return
    import torch
    from torch.utils import deterministic

    settings: Any = deterministic
    fills = settings.fill_uninitialized_memory
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    workspace = os.environ.get(_WORKSPACE_VARIABLE)
    os.environ.setdefault(_WORKSPACE_VARIABLE, ":4096:8")  # of NVIDIA's cuBLAS documentation, results reproducibility
    torch.use_deterministic_algorithms(True, warn_only=True)
    settings.fill_uninitialized_memory = False  # costs a pass over every new tensor; all are written before read
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        settings.fill_uninitialized_memory = fills
        if workspace is None:
            del os.environ[_WORKSPACE_VARIABLE]


def keep_freed_memory() -> bool:
    """Let this process, until it ends, keep memory that it freed: up to 256 MB of each heap, in blocks of up to 32 MB.

    The C library returns large blocks to the system at once, and fetches and clears them again in the next step: about
    a tenth of the time of a small convolutional network's step. This cannot be undone, so the command line and the
    benchmarks call it, and no function of the library does. A user's own settings of the C library's memory
    (`MALLOC_TRIM_THRESHOLD_`, `GLIBC_TUNABLES` and their like) are left alone.

    Returns:
        Whether the C library accepted: glibc does, others do not, nor does an allocator in its place.
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no such function, or no C library to ask
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _MAX_BLOCK_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, _MAX_FREE_BYTES))


def collect_rarely() -> None:
    """Have Python search for unused cycles of objects after 10,000 new ones, and older ones rarely, in this process.

    By default it does after 700, which takes a tenth of the time of a small job: most of it while libraries are
    imported, whose objects stay in use. A training step leaves no cycle, and a whole job of the command line about
    2,000 objects in them. At the end, where the system takes back all memory, the libraries' objects are not searched:
    with PyTorch alone that takes a quarter of a second.
    """
    gc.set_threshold(_YOUNG_THRESHOLD, _MIDDLE_THRESHOLD, _OLD_THRESHOLD)
    atexit.register(gc.freeze)


def lighten_imports() -> None:
    """Have libraries not import what they hardly use, in a process of the command line: a fifth of a run's imports.

    Where pandas is installed, PyArrow imports it at the first list or number that it converts, in case it is of one of
    its types, and so does scikit-learn; here are no frames of it. `scipy.stats`, which scikit-learn imports for a few
    functions, and `numpy.f2py`, which SciPy imports with all of NumPy's names, are loaded when something of them is
    used. All other modules, such as a user's model, import them as ever.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _WithoutPandas())
    sys.meta_path.insert(0, _LazyFinder())


_PANDAS_CHECKERS = ("sklearn.utils.fixes", "sklearn.compose._column_transformer")
"""Modules of scikit-learn that import pandas to check for its types alone, and go on without it."""
_LAZY_MODULES = ("numpy.f2py", "scipy.stats")


def _importer() -> FrameType:
    """Frame that reads a name of a module, or asks for a module, behind the frames of the import itself."""
    frame = sys._getframe(2)
    while frame.f_back and "importlib" in frame.f_globals.get("__name__", ""):
        frame = frame.f_back
    return frame


class _WithoutPandas(MetaPathFinder):
    """Finds nothing, and refuses pandas where PyArrow or scikit-learn ask for it."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name != "pandas":
            return
        # PyArrow's compiled code has no frames: what called it seems to import.
        importer = _importer().f_globals.get("__name__", "")
        if importer.partition(".")[0] in ("cutlayer", "pyarrow") or importer in _PANDAS_CHECKERS:
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")


class _LazyFinder(MetaPathFinder):
    """Finds the modules that are loaded on first use."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name in _LAZY_MODULES else None
        if spec is not None and spec.loader is not None:
            spec.loader = _LazyLoader(spec.loader)
        return spec


class _LazyLoader(Loader):
    """Makes a module that runs its code when something of it is read."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LazyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing yet."""


class _LazyModule(ModuleType):
    """A module whose code has not run. What scikit-learn's modules take of it when they are read waits for its call."""

    def __getattr__(self, name: str) -> Any:
        absent = AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name.startswith("__") and name != "__all__":  # what tools look for in every module
            raise absent
        importer = _importer()
        if importer.f_code.co_name == "<module>" and importer.f_globals.get("__name__", "").startswith("sklearn."):
            return called_on_first_use(f"{self.__name__}.{name}")
        with _LOAD_LOCK:
            spec = self.__spec__
            if spec and isinstance(spec.loader, _LazyLoader):
                spec.loader = self.__loader__ = spec.loader.loader
                spec.loader.exec_module(self)
                object.__setattr__(self, "__class__", ModuleType)
        if type(self) is _LazyModule:  # its own code asks for what it has not defined yet
            raise absent
        return getattr(self, name)


_LOAD_LOCK = RLock()
