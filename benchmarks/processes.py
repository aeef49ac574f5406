"""How benchmarks start the processes that they measure."""

from __future__ import annotations

import multiprocessing

context = multiprocessing.get_context("spawn")
"""A new interpreter for each: nothing of the measuring process counts. The tests, which measure nothing, fork."""
