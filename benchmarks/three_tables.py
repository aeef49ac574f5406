"""Made tables of three organisations, as people have them: a bank's loans, an insurer and a retailer.

The values are drawn, from two factors that the organisations' columns share. The insurer has 2,600 of the 3,000
borrowers, the retailer 2,700.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

LOANS, INSURED, CUSTOMERS = 3_000, 2_600, 2_700
LABEL = "status"
Vector = npt.NDArray[np.float64]
Texts = npt.NDArray[np.str_]


def write_three_tables(folder: Path, as_text: bool = False, seed: int = 0) -> None:
    """Write the tables: Parquet, or CSV in which dates, money and percent are text, as a spreadsheet writes them.

    Args:
        folder: Folder of the files.
        as_text: Whether it is CSV.
        seed: Seed of all values.
    """
    for name, table in _tables(np.random.default_rng(seed)).items():
        if as_text:
            table.transform({column: _TEXT.get(column, _same) for column in table}).to_csv(
                folder / f"{name}.csv", index=False, sep=";" if name == "insurer" else ","
            )
        else:
            table.to_parquet(folder / f"{name}.parquet", index=False)


def _tables(draw: np.random.Generator) -> Mapping[str, pd.DataFrame]:
    wealth, risk = draw.normal(size=(2, LOANS))
    ids = np.array([f"{number:08d}" for number in draw.choice(10**8, LOANS, replace=False)])
    insured, customers = (np.sort(draw.permutation(LOANS)[:count]) for count in (INSURED, CUSTOMERS))
    return {
        "bank": _bank(draw, ids, wealth, risk),
        "insurer": _insurer(draw, ids[insured], wealth[insured], risk[insured]),
        "retailer": _retailer(draw, ids[customers], wealth[customers], risk[customers]),
    }


def _bank(draw: np.random.Generator, ids: Texts, wealth: Vector, risk: Vector) -> pd.DataFrame:
    n = len(ids)
    off = draw.random(n) < 1 / (1 + np.exp(0.8 + 0.5 * wealth - 0.7 * risk))
    return pd.DataFrame(
        {
            "CustomerID": ids,
            "loan_id": [f"L{number:06d}" for number in draw.permutation(n)],
            "opened_on": _dates(draw.integers(1_460, size=n)),
            "amount": draw.integers(20, 400, n) * 100.0,
            "annual_income": np.exp(10.6 + 0.5 * wealth + 0.2 * draw.normal(size=n)).round(2),
            "interest": (9 + 2 * risk + draw.normal(size=n)).round(1),
            "term": draw.choice(["36 months", "60 months"], n, p=[0.7, 0.3]),
            "purpose": draw.choice(["car", "debt", "house", "medical", "other"], n, p=[0.15, 0.45, 0.2, 0.05, 0.15]),
            LABEL: np.where(off, "charged_off", "paid"),
        }
    )


def _insurer(draw: np.random.Generator, ids: Texts, wealth: Vector, risk: Vector) -> pd.DataFrame:
    n = len(ids)
    return pd.DataFrame(
        {
            "customer_id": ids,
            "policy_since": _dates(draw.integers(4_380, size=n)),
            "birth_year": 1960 + draw.integers(45, size=n),
            "premium": np.exp(6 + 0.3 * wealth + 0.3 * draw.normal(size=n)).round(2),
            "claims": draw.poisson(np.exp(-0.5 + 0.6 * risk)),
            "claimed": (draw.exponential(900, n) * (draw.random(n) < 0.3)).round(2),
            "product": draw.choice(["home", "car", "life", "travel"], n, p=[0.4, 0.35, 0.15, 0.1]),
            "region": draw.choice([f"region {number}" for number in range(1, 17)], n, p=_falling(16, 0.15)),
            "smoker": draw.choice(["no", "yes"], n, p=[0.8, 0.2]),
        }
    )


def _retailer(draw: np.random.Generator, ids: Texts, wealth: Vector, risk: Vector) -> pd.DataFrame:
    n = len(ids)
    return pd.DataFrame(
        {
            "cust_no": ids,
            "last_order": _dates(draw.integers(700, size=n)),
            "orders": draw.poisson(np.exp(1.8 + 0.4 * wealth)),
            "spent": np.exp(5.5 + 0.7 * wealth + 0.4 * draw.normal(size=n)).round(2),
            "returned": (100 * draw.beta(1, 9, n)).round(1),
            "utilisation": np.clip(45 + 20 * risk + 10 * draw.normal(size=n), 0, 100).round(1),
            "payment": draw.choice(["card", "invoice", "instalments"], n, p=[0.5, 0.35, 0.15]),
            "favourite": draw.choice([f"department {letter}" for letter in "ABCDEFGHIJ"], n, p=_falling(10, 0.3)),
            "newsletter": draw.choice(["yes", "no"], n),
        }
    )


def _dates(days: npt.NDArray[np.int64]) -> pd.DatetimeIndex:
    return pd.Timestamp("2012-01-01") + pd.to_timedelta(days, unit="D")


def _falling(count: int, rate: float) -> Vector:
    """Shares of so many levels, each smaller than the one before."""
    shares = np.exp(-rate * np.arange(count))
    return np.asarray(shares / shares.sum())


def _each(form: str) -> Callable[[pd.Series], pd.Series]:
    return lambda column: column.map(form.format)


def _same(column: pd.Series) -> pd.Series:
    return column


_TEXT: Mapping[str, Callable[[pd.Series], pd.Series]] = {
    **dict.fromkeys(("opened_on", "last_order"), _each("{:%Y-%m-%d}")),
    "policy_since": _each("{:%d.%m.%Y}"),
    **dict.fromkeys(("amount", "annual_income", "spent"), _each("${:,.2f}")),
    **dict.fromkeys(("interest", "returned", "utilisation"), _each("{:.1f}%")),
    **dict.fromkeys(("premium", "claimed"), lambda column: column.map("{:.2f}".format).str.replace(".", ",")),
}
"""How a column is written as text: dates in two forms, a sign and thousands, percent, a decimal comma."""
