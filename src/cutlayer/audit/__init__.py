"""Which attacks on which messages, scores to leak with intervals, findings and gates."""

from cutlayer.audit.auditor import Auditor, Cell, Series
from cutlayer.audit.completion import CompletionFigure, Worth, auxiliary, best
from cutlayer.audit.empirical import GuaranteeTest
from cutlayer.audit.features import (
    ColumnFigure,
    FeatureFigure,
    attribute_figures,
    auxiliary_places,
    inversion_figure,
    membership_figure,
)
from cutlayer.audit.findings import Finding, LeakFigure, findings_of
from cutlayer.audit.gates import Gate, gates_of
from cutlayer.audit.leak import Leak, leak_interval, leak_of

__all__ = [
    "Auditor",
    "Cell",
    "ColumnFigure",
    "CompletionFigure",
    "FeatureFigure",
    "Finding",
    "Gate",
    "GuaranteeTest",
    "Leak",
    "LeakFigure",
    "Series",
    "Worth",
    "attribute_figures",
    "auxiliary",
    "auxiliary_places",
    "best",
    "findings_of",
    "gates_of",
    "inversion_figure",
    "leak_interval",
    "leak_of",
    "membership_figure",
]
