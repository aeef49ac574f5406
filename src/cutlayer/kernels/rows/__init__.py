"""Rows of a matrix: norms, equal rows, and other forms."""
