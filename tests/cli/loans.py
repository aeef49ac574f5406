"""Loans of a bank, and what an insurer and a retailer know of its customers: as people write CSV files, and typed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

BANK, INSURER, RETAILER = "loans", "insurer", "retailer"
KEYS = {BANK: "CustomerID", INSURER: "customer_id", RETAILER: "cust_no"}
SIZES = {BANK: 3_000, INSURER: 2_600, RETAILER: 2_700}
FORMATS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    BANK: {"annual_income": {"number": "$"}, "utilisation": {"number": "%"}, "homeowner": {"boolean": ["yes", "no"]}},
    INSURER: {"client_since": {"date": "%d.%m.%Y"}, "insured_sum": {"number": "€"}},
    RETAILER: {"last_order": {"date": "%b %d, %Y"}},
}
"""What `init` has to find besides ISO dates, which need no line: of numbers, the sign that is in the example."""


def loans(seed: int = 0) -> dict[str, dict[str, list[Any]]]:
    """Columns of each organisation's table, typed.

    The label follows columns of all three, dates and amounts of money among them.
    """
    draw = np.random.default_rng(seed)
    rows = SIZES[BANK]
    customers = [f"{number:08d}" for number in draw.choice(10**7, rows, replace=False)]
    income, used = np.round(draw.lognormal(10.4, 0.5, rows), 2), np.round(draw.uniform(0, 100, rows), 1)
    opened, since, last = (draw.integers(0, days, rows) for days in (2_000, 5_000, 700))
    insured, claims = np.round(draw.lognormal(9, 0.7, rows), 2), np.round(draw.exponential(2.0, rows), 2)
    spent = np.round(draw.exponential(80.0, rows), 2)
    score = used / 30 - np.log(income) + claims / 2 + since / 2_000 - last / 300 + opened / 1_500
    score += draw.normal(size=rows)
    events = np.where(score > np.quantile(score, 0.67), "charged_off", "paid")
    start = date(2018, 1, 1)
    tables: dict[str, dict[str, list[Any]]] = {
        BANK: {
            "loan_id": [*range(1, rows + 1)],
            "CustomerID": customers,
            "opened_on": [start + timedelta(days=int(day)) for day in opened],
            "annual_income": [*income],
            "utilisation": [*used],
            "homeowner": [bool(owns) for owns in draw.integers(0, 2, rows)],
            "status": [*map(str, events)],
        },
        INSURER: {
            "customer_id": customers,
            "client_since": [date(2009, 1, 1) + timedelta(days=int(day)) for day in since],
            "insured_sum": [*insured],
            "claims": [*claims],
        },
        RETAILER: {
            "cust_no": customers,
            "last_order": [date(2022, 1, 1) + timedelta(days=int(day)) for day in last],
            "basket": [*spent],
        },
    }
    for name in (INSURER, RETAILER):
        kept = sorted(draw.choice(rows, SIZES[name], replace=False))
        tables[name] = {column: [values[row] for row in kept] for column, values in tables[name].items()}
    return tables


def write_csv_files(folder: Path) -> None:
    """The tables as a spreadsheet or a report writes them."""
    written = {
        BANK: {
            "annual_income": lambda value: f'"${value:,.2f}"',
            "utilisation": lambda value: f"{value:.1f}%",
            "homeowner": lambda value: "yes" if value else "no",
        },
        INSURER: {
            "client_since": lambda value: value.strftime("%d.%m.%Y"),
            "insured_sum": lambda value: f"{value:,.2f} €".translate(str.maketrans(",.", ".,")),
            "claims": lambda value: f"{value:.2f}".replace(".", ","),
        },
        RETAILER: {"last_order": lambda value: value.strftime('"%b %d, %Y"')},
    }
    for name, columns in loans().items():
        delimiter = ";" if name == INSURER else ","
        texts = [[*map(written[name].get(column, str), values)] for column, values in columns.items()]
        lines = [delimiter.join(columns), *(delimiter.join(row) for row in zip(*texts, strict=True))]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


def write_parquet_files(folder: Path) -> None:
    """The tables with their types."""
    for name, columns in loans().items():
        table = pa.table({column: pa.array(values) for column, values in columns.items()})
        parquet.write_table(table, folder / f"{name}.parquet")
