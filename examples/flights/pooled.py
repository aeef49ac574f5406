"""What gradient boosting makes of the same flights with all columns in one place, split as a run splits them.

Usage: python examples/flights/pooled.py flights
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold

OWN = ["month", "day", "sched_dep_time", "sched_arr_time", "carrier", "origin", "dest", "distance", "hour"]
WEATHER = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
REGISTRY = ["built", "type", "manufacturer", "model", "engines", "seats", "engine"]


def joined(folder: Path) -> pd.DataFrame:
    """All columns of each flight."""
    flights = pd.read_csv(folder / "flights.csv", dtype={"flight": str, "tailnum": str})
    weather = pd.read_csv(folder / "weather.csv").drop_duplicates(["origin", "time_hour"])
    planes = pd.read_csv(folder / "planes.csv").rename(columns={"year": "built"})
    whole = flights.merge(weather[["origin", "time_hour", *WEATHER]], on=["origin", "time_hour"], how="left")
    return whole.merge(planes[["tailnum", *REGISTRY]], on="tailnum", how="left")


def auc(table: pd.DataFrame, columns: list[str], groups: pd.Series) -> float:
    """AUC by five-fold cross-validation; rows of one group are in one fold."""
    features = table[columns].copy()
    for name in features.select_dtypes(exclude="number"):
        features[name] = features[name].astype("category").cat.codes.replace(-1, np.nan)
    scores = np.empty(len(table))
    for train, test in GroupKFold(5).split(features, groups=groups):
        model = HistGradientBoostingClassifier(random_state=0)
        model.fit(features.iloc[train], table.late.iloc[train])
        scores[test] = model.predict_proba(features.iloc[test])[:, 1]
    return float(roc_auc_score(table.late, scores))


def main() -> None:
    """Print the AUC of each set of columns."""
    table = joined(Path(sys.argv[1]))
    hours, aircraft = table.origin + table.time_hour, table.tailnum
    for name, columns, groups in (
        ("airline alone, other hours", OWN, hours),
        ("with weather, other hours", OWN + WEATHER, hours),
        ("airline alone, other aircraft", OWN, aircraft),
        ("with registry, other aircraft", OWN + REGISTRY, aircraft),
        ("all three, other hours", OWN + WEATHER + REGISTRY, hours),
    ):
        sys.stdout.write(f"{name:30} {auc(table, columns, groups):.4f}\n")


if __name__ == "__main__":
    main()
