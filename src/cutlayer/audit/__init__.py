"""Audits runs: attacks on messages, leaks with intervals, findings and gates."""

from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.audit.auditor import AttackTarget, Auditor, LeakSeries
from cutlayer.audit.completion import audit_completions, auxiliary_labels
from cutlayer.audit.features import audit_features
from cutlayer.audit.findings import findings_of
from cutlayer.audit.gates import gates_of
from cutlayer.audit.leak import Leak, leak_interval, leak_of
from cutlayer.training.attacked import auxiliary_indices

__all__ = [
    "AttackAudit",
    "AttackTarget",
    "Auditor",
    "Leak",
    "LeakSeries",
    "audit_completions",
    "audit_features",
    "auxiliary_indices",
    "auxiliary_labels",
    "findings_of",
    "gates_of",
    "leak_interval",
    "leak_of",
]
