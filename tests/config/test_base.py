"""Models are built when they are first used, which hides none that cannot be, and disturbs no thread."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pkgutil import walk_packages
from threading import Barrier

import cutlayer
from cutlayer.config.base import FrozenModel, validated
from cutlayer.errors import ConfigError

THREADS = 8


def _subclasses(kind: type[FrozenModel]) -> Iterator[type[FrozenModel]]:
    for inner in kind.__subclasses__():
        yield inner
        yield from _subclasses(inner)


def test_every_model_can_be_built() -> None:
    for module in walk_packages(cutlayer.__path__, "cutlayer."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    models = [kind for kind in _subclasses(FrozenModel) if kind.__module__.startswith("cutlayer.")]
    assert len(models) > 100
    for kind in models:
        kind.model_rebuild()
        assert kind.__pydantic_complete__, kind


def test_a_model_that_several_threads_use_first_is_one_and_the_same() -> None:
    for _ in range(20):

        class Inner(FrozenModel):
            size: int

        class Outer(FrozenModel):
            inner: Inner
            names: tuple[str, ...] = ()

        begin = Barrier(THREADS)

        def read(index: int, *, outer: type[FrozenModel] = Outer, begin: Barrier = begin) -> str:
            begin.wait()
            try:
                return repr(validated(outer, {"inner": {"size": 3}} if index % 2 else {"inner": {"seize": 3}}, "made"))
            except ConfigError as failure:
                return str(failure)

        with ThreadPoolExecutor(THREADS) as pool:
            results = [*pool.map(read, range(THREADS))]
        assert set(results[1::2]) == {"Outer(inner=Inner(size=3), names=())"}
        assert set(results[::2]) == {"made.inner.seize: unknown key; did you mean 'size'?\nmade.inner.size: missing"}
