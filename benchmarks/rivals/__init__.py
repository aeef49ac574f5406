"""Cutlayer beside other systems on the same rows, columns and splits; see `python -m benchmarks.rivals --help`."""
