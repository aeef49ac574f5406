"""The same job with other numbers: trials, the utility-leak front, and its knee."""

from cutlayer.sweeps.measure import LeakKind
from cutlayer.sweeps.page import render_page
from cutlayer.sweeps.result import SweepResult, TrialMetrics, TrialResult
from cutlayer.sweeps.search import Plan, run_sweep
from cutlayer.sweeps.space import Choices, Range, Space, parse_varied

__all__ = [
    "Choices",
    "LeakKind",
    "Plan",
    "Range",
    "Space",
    "SweepResult",
    "TrialMetrics",
    "TrialResult",
    "parse_varied",
    "render_page",
    "run_sweep",
]
