"""Data sets of the studies, and the jobs over them that several studies share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.io import loadmat

from cutlayer.config import Job, validated
from cutlayer.config.load import load_job
from cutlayer.consent import allowed
from cutlayer.data.sources import open_source
from cutlayer.demo import FOLDER
from cutlayer.errors import DataError

NETWORK = {
    "bottom": {"kind": "mlp", "hidden": [128] * 5, "embedding": 4},
    "top": {"kind": "mlp", "hidden": [128, 128]},
}
"""The Criteo network of Sun et al. 2022: five ReLU layers of 128 below the cut, three layers above it."""

SMALL = {
    "epochs": 12,
    "batch_size": 8192,
    "optimizer": {"kind": "adam", "lr": 1e-3},
    "split": {"test": 0.1, "validation": 0.05},
    "threads": 1,
}
"""Preset `small`: log1p before min-max, batch 8192, Adam 1e-3; the best of 12 epochs on validation rows is kept."""


def criteo(data: Path, seed: int, privacy: Mapping[str, Any], attacks: Sequence[str]) -> Job:
    """Criteo, all features at the passive party, preset `small`."""
    columns = ["label", "I1..I13", "C1..C26"]
    path = existing(data / "criteo" / "criteo_train_137k.tsv.gz")
    table = {"path": str(path), "format": "csv", "delimiter": "\t", "columns": columns}
    features = {"include": columns[1:], "categorical": ["C1..C26"]}
    return _two_parties(table, "label", features, seed, privacy, attacks, SMALL)


def avazu(data: Path, seed: int, privacy: Mapping[str, Any], attacks: Sequence[str]) -> Job:
    """Avazu, all features at the passive party, all_hold column a category; batch 4096, since it has 53,247 rows."""
    train = {**SMALL, "batch_size": 4096}
    path = existing(data / "avazu" / "avazu_merged.csv.gz")
    return _two_parties({"path": str(path)}, "click", _avazu_features(), seed, privacy, attacks, train)


def avazu_at_both(data: Path, seed: int, privacy: Mapping[str, Any], attacks: Sequence[str]) -> Job:
    """`avazu` with columns at the active party too: where and when the ad was shown, and on what device."""
    raw = avazu(data, seed, privacy, attacks).model_dump()
    everything = raw["parties"]["publisher"]["features"]["include"]
    own = [name for name in everything if name in ("C1", "banner_pos", "hour") or name.startswith("device_")]
    for party, names in (("advertiser", own), ("publisher", [name for name in everything if name not in own])):
        raw["parties"][party]["features"] |= {"include": names, "categorical": names}
    return validated(Job, raw, "study")


def avazu_by_day(data: Path, seed: int, privacy: Mapping[str, Any], attacks: Sequence[str]) -> Job:
    """Avazu's 20,000 rows of all ten days, batch 1024; 30 % for testing, so that each day has some 600 test rows.

    The audit records every step, from which the leak of each day is measured, and no layer.
    """
    train = {**SMALL, "batch_size": 1024, "split": {"test": 0.3, "validation": 0.05}}
    path = existing(data / "avazu" / "avazu_random_20k_10days.csv.gz")
    audit = {"rows": 2**15, "layers": False}
    return _two_parties({"path": str(path)}, "click", _avazu_features(), seed, privacy, attacks, train, audit)


def _avazu_features() -> dict[str, Any]:
    """Every column but the id, the label and the name of the block."""
    everything = ["C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain"]
    everything += ["app_category", "device_id", "device_ip", "device_model", "device_type", "device_conn_type"]
    everything += ["C14..C21", "hour"]
    return {"include": everything, "categorical": everything}


def with_positives(job: Job, share: float, seed: int) -> dict[str, pa.Table]:
    """All positives of a job's file, and so many negatives that the positives are `share` of the rows.

    The negatives are drawn at random; rows keep the file's order.

    Args:
        job: Job of `criteo`, all parties over one file.
        share: Share of the positives, above that of the file and below 1.
        seed: Seed of the draw.

    Returns:
        Each party's table in memory.

    Raises:
        DataError: the file has a larger share of positives already.
    """
    owner, (party,) = job.parties[job.active], job.passives
    names, label = [*job.parties[party].features.include], str(owner.label)
    whole = open_source(owner.table, job.active).read([label, *names], job.parties[party].features.categorical)
    positive = whole.column(label).to_numpy() == 1
    negatives = np.flatnonzero(~positive)
    wanted = round(int(positive.sum()) * (1 - share) / share)
    if wanted > len(negatives):
        raise DataError.expected(f"positives below {share:g} of the rows", f"{positive.mean():.3f}", "raise the share")
    chosen = np.random.default_rng([seed, round(1000 * share)]).choice(negatives, wanted, replace=False)
    rows = whole.take(pa.array(np.sort(np.concatenate([np.flatnonzero(positive), chosen]))))
    return {job.active: rows.select([label]), party: rows.select(names)}


def with_epochs(job: Job, epochs: int) -> Job:
    """The same job with another number of epochs."""
    return job.model_copy(update={"train": job.train.model_copy(update={"epochs": epochs})})


def with_audit(job: Job, **audit: object) -> Job:
    """The same job with other keys of the active party's audit, such as `every="never"`."""
    raw = job.model_dump()
    raw["parties"][job.active]["audit"] |= audit
    return validated(Job, raw, "study")


def with_more_steps(job: Job) -> Job:
    """The same job at batch 1024 and the rate of Sun et al. 2022, Adam 1e-4: 1,710 steps in 15 epochs on Criteo.

    Batch 8192 and Adam 1e-3 take 180 steps in 12 epochs; the paper has 1,500 to 15,000.
    """
    optimizer = job.train.optimizer.model_copy(update={"lr": 1e-4})
    train = job.train.model_copy(update={"epochs": 15, "batch_size": 1024, "optimizer": optimizer})
    return job.model_copy(update={"train": train})


def with_linear_top(job: Job) -> Job:
    """The same job with one linear layer above the cut."""
    model = job.model.model_copy(update={"top": {"kind": "mlp", "hidden": ()}})
    return job.model_copy(update={"model": model})


def handwritten(data: Path) -> tuple[list[str], dict[str, pa.Table]]:
    """The six views of 2,000 digits: names of the parties, and a table for each; the first holds the labels."""
    content = loadmat(existing(data / "multiview" / "handwritten.mat"))
    views = [np.asarray(view, dtype=np.float64) for view in content["X"].ravel()]
    views = [view if len(view) == 2000 else view.T for view in views]
    names = [f"view{index}" for index in range(len(views))]
    tables = {
        name: pa.table({f"x{column}": view[:, column] for column in range(view.shape[1])})
        for name, view in zip(names, views, strict=True)
    }
    labels = next(np.asarray(content[key]).ravel() for key in ("Y", "y", "gt", "truth") if key in content)
    tables[names[0]] = tables[names[0]].append_column("digit", pa.array(labels.astype(np.int64)))
    return names, tables


def digits(
    names: Sequence[str],
    owner: Mapping[str, Any],
    audit: Mapping[str, Any],
    train: Mapping[str, Any],
    **sections: object,
) -> Job:
    """A job over the tables of `handwritten`: 30 epochs of batch 64.

    Args:
        names: Names of the parties, the active one first.
        owner: Keys of the active party, such as `privacy` and `audit`.
        audit: Audit of each passive party.
        train: Keys of the schedule, the seed among them.
        **sections: Further sections of the job.
    """
    raw = {
        "task": "multiclass",
        "parties": {
            names[0]: {"role": "active", "label": "digit", **owner},
            **{name: {"role": "passive", "audit": audit} for name in names[1:]},
        },
        "train": {"epochs": 30, "batch_size": 64, "threads": 1, **train},
        **sections,
    }
    return validated(Job, raw, "study")


ADULT_JOB, ADULT_TABLE = Path(__file__).parents[1] / "examples" / "adult.yaml", FOLDER / "adult.parquet"
"""The demo's parties trained end to end, and the data that ship with the package."""


def example_job() -> Job:
    """The job of `examples/adult.yaml`, whose table is not in its folder."""
    with allowed(paths=[FOLDER]):
        return load_job(ADULT_JOB)


def adult_example(_folder: Path, seed: int) -> Job:
    """`examples/adult.yaml`, whose table ships with the package, with another seed and one thread."""
    raw = example_job().model_dump()
    return validated(Job, {**raw, "train": {**raw["train"], "seed": seed, "threads": 1}}, "study")


def adult(seed: int, privacy: Mapping[str, Any], top: Mapping[str, Any], compare: Sequence[str]) -> Job:
    """Adult's 48,842 rows at the demo's three parties, with a job's default network and schedule, not recorded."""
    raw = example_job().model_dump(exclude={"model", "train"})
    raw["parties"]["bank"]["privacy"] = privacy
    for party in raw["parties"].values():
        party["audit"] = {"every": "never"}
    return validated(
        Job, {**raw, "model": {"top": top}, "train": {"seed": seed, "threads": 1}, "compare": compare}, "study"
    )


def default_credit(folder: Path, seed: int) -> Job:
    """FATE's example: 30,000 rows, 13 columns and the label at the guest, 10 columns at the host."""
    table = str(existing(folder / "fate" / "default_credit_hetero_guest.csv.gz"))
    parties = {
        "guest": {"role": "active", "id": "id", "label": "y", "table": table},
        "host": {"role": "passive", "id": "id", "table": table.replace("guest", "host")},
    }
    return _small(parties, seed)


def bank(folder: Path, seed: int) -> Job:
    """Bank marketing, 45,211 rows: clients at the bank, which holds the label, and campaigns at a call centre."""
    table = {"path": str(existing(folder / "bank" / "bank-full.csv.gz")), "delimiter": ";"}
    client = ["age", "job", "marital", "education", "default", "balance", "housing", "loan"]
    campaign = ["contact", "day", "month", "duration", "campaign", "pdays", "previous", "poutcome"]
    parties = {
        "bank": {"role": "active", "id": "@row", "label": "y", "table": table, "features": {"include": client}},
        "call_centre": {"role": "passive", "id": "@row", "table": table, "features": {"include": campaign}},
    }
    return _small(parties, seed)


def _small(parties: Mapping[str, Any], seed: int) -> Job:
    return validated(Job, {"parties": parties, "train": {"batch_size": 256, "seed": seed, "threads": 1}}, "study")


def _two_parties(
    table: Mapping[str, Any],
    label: str,
    features: Mapping[str, Any],
    seed: int,
    privacy: Mapping[str, Any],
    attacks: Sequence[str],
    train: Mapping[str, Any],
    audit: Mapping[str, Any] | None = None,
) -> Job:
    numbers = {"transform": "log1p", "scale": "minmax", "missing": "zero"}
    common = {"table": table, "id": "@row"}
    owner = {"role": "active", **common, "label": label, "features": {"include": "none"}, "privacy": privacy}
    raw = {
        "parties": {
            "advertiser": {**owner, "audit": {"attacks": list(attacks), "max_megabytes": 64, **(audit or {})}},
            "publisher": {"role": "passive", **common, "features": {**features, "numbers": numbers}},
        },
        "model": NETWORK,
        "train": {**train, "seed": seed},
    }
    return validated(Job, raw, "study")


def existing(path: Path) -> Path:
    """The path itself, if there is such a file.

    Raises:
        DataError: there is no such file.
    """
    if not path.exists():
        raise DataError.expected(f"the data set {path}", "no such file", "name the folder of data sets with --data")
    return path
