"""The same job again and again with other numbers: the utility-leak front, and its knee."""

from cutlayer.sweeps.found import Found, SweptTrial
from cutlayer.sweeps.measure import LeakKind, Measured
from cutlayer.sweeps.page import render_page
from cutlayer.sweeps.search import Plan, run_sweep
from cutlayer.sweeps.space import Choices, Range, Space, parse_varied

__all__ = [
    "Choices",
    "Found",
    "LeakKind",
    "Measured",
    "Plan",
    "Range",
    "Space",
    "SweptTrial",
    "parse_varied",
    "render_page",
    "run_sweep",
]
