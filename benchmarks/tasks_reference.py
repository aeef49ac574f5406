"""Data and other libraries' models for `benchmarks.tasks`, in an interpreter of its own.

It needs scikit-survival (GPL-3, which Cutlayer neither imports nor installs), statsmodels, and islp without its
dependencies. `data DIR` writes the tables of the two parties; `models DIR` fits models to all columns in one place, and
prints a line of JSON for each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

OWN = {
    "flchain": ("age", "sex", "sample.yr"),
    "randhie": ("lncoins", "idp", "lpi", "fmde"),
    "bikeshare": ("season", "mnth", "day", "hr", "holiday", "weekday", "workingday"),
}
LABELS = {"flchain": ("futime", "death"), "randhie": ("mdvis",), "bikeshare": ("bikers",)}
LEFT_OUT = {"flchain": ("chapter",), "randhie": (), "bikeshare": ("casual", "registered", "Unnamed: 0")}
"""Columns that are known after the label alone: the cause of death, the parts of a count; and row numbers."""


def table_of(name: str) -> pd.DataFrame:
    """All columns of a data set."""
    if name == "flchain":
        from sksurv.datasets import load_flchain

        features, outcome = load_flchain()
        return features.assign(futime=outcome["futime"], death=outcome["death"].astype(int))
    if name == "randhie":
        from statsmodels.datasets import randhie

        return randhie.load_pandas().data
    import importlib.util

    package = importlib.util.find_spec("ISLP")
    if package is None or package.origin is None:
        raise SystemExit("expected the package islp, got none; pip install --no-deps islp==0.6.0")
    return pd.read_csv(Path(package.origin).parent / "data" / "Bikeshare.csv")


def write(folder: Path) -> None:
    """Write `NAME/owner.csv` and `NAME/partner.csv` of each data set."""
    for name in OWN:
        table = table_of(name).drop(columns=[*LEFT_OUT[name]], errors="ignore")
        table.insert(0, "id", np.arange(len(table)) + 1)
        owner = ["id", *OWN[name], *LABELS[name]]
        partner = [column for column in table if column not in owner[1:]]
        (folder / name).mkdir(parents=True, exist_ok=True)
        table[owner].to_csv(folder / name / "owner.csv", index=False)
        table[partner].sample(frac=1, random_state=1).to_csv(folder / name / "partner.csv", index=False)


def survival(table: pd.DataFrame, test: np.ndarray) -> Any:
    """Proportional hazards, and boosting of their likelihood, by scikit-survival."""
    from sksurv.ensemble import GradientBoostingSurvivalAnalysis
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.metrics import concordance_index_censored, integrated_brier_score
    from sksurv.util import Surv

    x = pd.get_dummies(table.drop(columns=["id", "futime", "death"]), drop_first=True, dtype=float)
    x = x.assign(missing=x.isna().any(axis=1).astype(float)).fillna(x[~test].median())
    x = (x - x[~test].mean()) / x[~test].std()
    events, times = table.death.to_numpy() == 1, table.futime.to_numpy(dtype=float)
    outcome = Surv.from_arrays(events, times)
    grid = np.quantile(times[test][events[test]], np.linspace(0.05, 0.95, 50))
    for model in (CoxPHSurvivalAnalysis(alpha=1e-3), GradientBoostingSurvivalAnalysis(random_state=0)):
        model.fit(x[~test], outcome[~test])
        curves = np.array([curve(grid) for curve in model.predict_survival_function(x[test])])
        ranked = concordance_index_censored(events[test], times[test], model.predict(x[test]))[0]
        brier = integrated_brier_score(outcome[test], outcome[test], curves, grid)
        yield type(model).__name__, {"concordance": float(ranked), "integrated_brier": float(brier)}


def counts(table: pd.DataFrame, label: str, test: np.ndarray) -> Any:
    """Poisson regression and boosting, by scikit-learn."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import PoissonRegressor
    from sklearn.metrics import d2_tweedie_score, mean_absolute_error
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    x, y = table.drop(columns=["id", label]), table[label].to_numpy(dtype=float)
    words = [name for name in x if not pd.api.types.is_numeric_dtype(x[name])]
    x = x.astype(dict.fromkeys(words, "category"))
    numbers = [name for name in x if name not in words]
    encoded = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), words), (StandardScaler(), numbers))
    boosting = HistGradientBoostingRegressor(loss="poisson", categorical_features="from_dtype", random_state=0)
    for name, model in (
        ("PoissonRegressor", make_pipeline(encoded, PoissonRegressor(alpha=1e-4, max_iter=1000))),
        ("HistGradientBoostingRegressor", boosting),
    ):
        predicted = model.fit(x[~test], y[~test]).predict(x[test])
        d2 = float(d2_tweedie_score(y[test], predicted, power=1))
        yield name, {"d2": d2, "mae": float(mean_absolute_error(y[test], predicted))}


def main(what: str, folder: Path) -> None:
    """Write the data, or fit the models to the rows that `NAME/test.json` does not list."""
    if what == "data":
        write(folder)
        return
    for name in OWN:
        parts = [pd.read_csv(folder / name / f"{party}.csv") for party in ("owner", "partner")]
        table = parts[0].merge(parts[1], on="id")
        test = table.id.isin(json.loads((folder / name / "test.json").read_text())).to_numpy()
        fitted = survival(table, test) if name == "flchain" else counts(table, LABELS[name][0], test)
        for model, metrics in fitted:
            print(json.dumps({"data": name, "model": model, **metrics}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
