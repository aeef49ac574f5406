"""The same job with other numbers: trials, the utility-leak front, and its knee."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.sweeps.leak_kind import LeakKind as LeakKind
    from cutlayer.sweeps.page import render_page as render_page
    from cutlayer.sweeps.plan import Plan as Plan
    from cutlayer.sweeps.result import SweepResult as SweepResult
    from cutlayer.sweeps.result import TrialMetrics as TrialMetrics
    from cutlayer.sweeps.result import TrialResult as TrialResult
    from cutlayer.sweeps.search import run_sweep as run_sweep
    from cutlayer.sweeps.space import Choices as Choices
    from cutlayer.sweeps.space import Range as Range
    from cutlayer.sweeps.space import Space as Space
    from cutlayer.sweeps.space import parse_varied as parse_varied
else:
    _MODULES = {
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
    }
    __all__ = [*_MODULES]
    __getattr__, __dir__ = on_first_use(__name__, _MODULES)
