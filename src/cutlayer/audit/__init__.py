"""Which attacks on which messages, scores to leak AUC with intervals, findings and gates."""

from cutlayer.audit.auditor import Auditor, Cell, Series
from cutlayer.audit.findings import Finding, LeakFigure, findings_of
from cutlayer.audit.gates import Gate, gates_of
from cutlayer.audit.leak import Leak, leak_interval, leak_of

__all__ = [
    "Auditor",
    "Cell",
    "Finding",
    "Gate",
    "Leak",
    "LeakFigure",
    "Series",
    "findings_of",
    "gates_of",
    "leak_interval",
    "leak_of",
]
