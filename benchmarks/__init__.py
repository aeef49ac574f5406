"""Benchmarks: each compares A and B in one run and reports a ratio with its spread."""
