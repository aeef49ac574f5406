"""Audits runs: attacks on messages, leaks with intervals, findings and gates."""
