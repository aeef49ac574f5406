"""The same job with other numbers: trials, the utility-leak front, and its knee."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.sweeps.leak_kind import LeakKind
    from cutlayer.sweeps.page import render_page
    from cutlayer.sweeps.plan import Plan
    from cutlayer.sweeps.result import SweepResult, TrialMetrics, TrialResult
    from cutlayer.sweeps.search import run_sweep
    from cutlayer.sweeps.space import Choices, Range, Space, parse_varied
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "Choices": ".space",
            "LeakKind": ".leak_kind",
            "Plan": ".search",
            "Range": ".space",
            "Space": ".space",
            "SweepResult": ".result",
            "TrialMetrics": ".result",
            "TrialResult": ".result",
            "parse_varied": ".space",
            "render_page": ".page",
            "run_sweep": ".search",
        },
    )

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
