"""Tables in a star: loans of a bank, to whose rows those of a telco and of a land register belong by other columns."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa

from cutlayer.config import Job, validated
from tests.parties.runs import ACTIVE, PASSIVES, UNAUDITED, raw_job

TELCO, LAND = PASSIVES[:2]
NAMES = (ACTIVE, TELCO, LAND)
PHONES, PARCELS, LOANS = 150, 90, 400
PARTNER_IDS: dict[str, Any] = {
    TELCO: "phone",
    LAND: {"column": ["district", "parcel"], "normalise": ["lower", "strip"]},
}


def star(seed: int = 0, loans: int = LOANS) -> dict[str, pa.Table]:
    """Loans with a telephone and a parcel each, of which some are missing and some not at the partner.

    Labels depend on a column of each party.
    """
    draw = np.random.default_rng(seed)
    phone, parcel = draw.integers(PHONES, size=loans), draw.integers(PARCELS, size=loans)
    calls, area, amount = draw.normal(size=PHONES), draw.normal(size=PARCELS), draw.normal(size=loans)
    odds = amount + 1.5 * calls[phone] + 1.5 * area[parcel]
    label = np.where(odds + draw.logistic(size=loans) > 0, "bad", "good")
    district = np.array(["North", "South", "West"])
    known, listed = draw.permutation(PHONES)[:110], draw.permutation(PARCELS)[:70]
    bank = {
        "id": pa.array(draw.permutation(loans) + 7000),
        "phone": pa.array(phone + 100, mask=draw.random(loans) < 0.1),
        "district": pa.array(district[parcel % 3]),
        "parcel": pa.array(parcel, mask=draw.random(loans) < 0.1),
        "amount": pa.array(amount),
        "label": pa.array(label),
    }
    telco = {"number": pa.array(np.r_[known + 100, 990, 991]), "calls": pa.array(np.r_[calls[known], 0, 0])}
    land = {
        "district": pa.array(np.char.upper(district[np.r_[listed, 2] % 3])),
        "parcel": pa.array(np.r_[listed, 999]),
        "area": pa.array(np.r_[area[listed], 0]),
    }
    return {ACTIVE: pa.table(bank), TELCO: pa.table(telco), LAND: pa.table(land)}


def raw_star(**options: Any) -> dict[str, Any]:
    """The job of such tables, in which each partner's row is released once."""
    linear = {"kind": "linear", "width": 4}
    settings: dict[str, Any] = {
        "bottom": {ACTIVE: {"kind": "auto"}, TELCO: linear, LAND: linear},
        "top": {"kind": "linear", "folds": 1},
        "privacy": {"label_free": {}},
        "audit": UNAUDITED,
        "release": "once",
        "split": {"test": 0.3, "validation": 0.1},
    }
    made = raw_job(passives=2, **(settings | options)) | {"rows": "all"}
    made["parties"][ACTIVE]["partner_ids"] = deepcopy(PARTNER_IDS)
    made["parties"][TELCO] |= {"id": "number", "fit": {"kind": "sketch"}}
    made["parties"][LAND] |= {
        "id": {"column": ["district", "parcel"], "normalise": ["lower", "strip"]},
        "fit": {"kind": "sketch"},
    }
    return made


def star_job(**options: Any) -> Job:
    """`raw_star`, validated."""
    return validated(Job, raw_star(**options), "")


def keys_of(given: dict[str, pa.Table], partner: str, *, of: str = ACTIVE) -> list[Any]:
    """The key by which each row of a table refers to a partner's, or by which the partner's rows are identified."""
    if partner == TELCO:
        return list(given[of]["phone" if of == ACTIVE else "number"].to_pylist())
    pairs = zip(given[of]["district"].to_pylist(), given[of]["parcel"].to_pylist(), strict=True)
    return [None if parcel is None else (name.lower(), parcel) for name, parcel in pairs]


def held_by(given: dict[str, pa.Table], partner: str) -> list[bool]:
    """Whether the partner has the row of each loan."""
    there = set(keys_of(given, partner, of=partner))
    return [key in there for key in keys_of(given, partner)]


def raw_graded_star() -> dict[str, Any]:
    """The job of such tables in which each partner releases a grade of each row, of labels that were drawn."""
    made = raw_star(privacy={"label_dp": {"eps": 3.0}})
    fit = {"kind": "grade", "candidates": ["linear"], "folds": 2, "least_z": 0, "limits": {"other": 1.0}}
    made["model"]["bottom"] = {ACTIVE: {"kind": "auto"}}
    for name in (TELCO, LAND):
        made["model"]["bottom"][name] = {"kind": "grade", "grades": 4, "least_rows": 0}
        made["parties"][name] |= {"fit": fit, "privacy": {"grade_dp": {"epsilon": 8.0}}}
    return made


def graded_star(made: dict[str, Any] | None = None) -> Job:
    """A job as `raw_graded_star` makes it, validated."""
    return validated(Job, made or raw_graded_star(), "")
