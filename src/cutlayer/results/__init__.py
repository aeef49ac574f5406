"""Typed records of what was measured: written once, by training and audit, and read by everything above."""
