"""Top models that are fitted at once: linear models, boosting, networks, and their average."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use
from cutlayer.models.fitted.result import Candidate, ColumnImportance, FitResult

if TYPE_CHECKING:
    from cutlayer.models.fitted.top import FittedTop
else:
    __getattr__, __dir__ = on_first_use(__name__, {"FittedTop": ".top"})

__all__ = ["Candidate", "ColumnImportance", "FitResult", "FittedTop"]
