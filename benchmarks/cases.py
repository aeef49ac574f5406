"""Cases whose results are appended to a file, a line each: what is there is not measured again."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.provenance import provenance


def parser_of(name: str, description: str | None, results: Path, tables: Sequence[str], rows: int) -> Any:
    """The options of a benchmark on several data sets and seeds.

    Args:
        name: Name of its module.
        description: Its docstring.
        results: Default of the file.
        tables: Names of the data sets.
        rows: Default of the number of rows.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--results", type=Path, default=results, help="file that results are appended to")
    parser.add_argument("--tables", type=lambda text: text.split(","), default=[*tables], help=", ".join(tables))
    parser.add_argument("--rows", type=int, default=rows, help="rows of each data set")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    return parser


def append(lines: list[dict[str, Any]], line: dict[str, Any], results: Path) -> None:
    """Add the line of a case, with the commit, to those that are known and to the file."""
    lines.append({**line, "commit": provenance()["commit"]})
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(lines[-1]) + "\n")
