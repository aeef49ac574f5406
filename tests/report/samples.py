"""Sample reports with realistic figures: every one is drawn from a seeded generator, so that no two are alike."""

from __future__ import annotations

import copy
import json
import math
import random
from functools import cache
from typing import Any

RUNS = {
    "this run": ["label_dp", "max_norm"],
    "undefended": [],
    "label_dp": ["label_dp"],
    "max_norm": ["max_norm"],
}
TRAFFIC = {"embedding": [0, 81_920_000], "gradient": [81_920_000, 0], "evaluation": [0, 9_500]}
CEILING = {"this run": 0.63, "undefended": 0.97, "label_dp": 0.82, "max_norm": 0.7}
ATTACKS = [("gradient", "norm"), ("gradient", "direction"), ("gradient", "spectral"), ("embedding", "spectral")]
JOB = """\
name: adult
parties:
  bank:
    role: active
    table: bank.parquet
    id: customer
    label: income
    privacy:
      label_dp: {eps: 1.0}
      max_norm: {}
    audit: {attacks: [norm, direction, spectral], every: epoch, fail_above: {label_auc: 0.6}}
  census:
    role: passive
    table: census.parquet
    id: customer
model:
  bottom: {kind: mlp, hidden: [64, 32]}
  top:    {kind: mlp, hidden: [32]}
train: {epochs: 10, batch_size: 256, optimizer: {kind: adam, lr: 1.0e-3}, seed: 7}
"""


def _run(**other: Any) -> dict[str, Any]:
    return {
        "id": "20260301-140509-7c1e",
        "name": "adult",
        "created": "2026-03-01T14:05:09+00:00",
        "cutlayer": "0.1.0",
        "torch": "2.13.0",
        "python": "3.11.9",
        "threads": 1,
        "seed": 7,
        "seconds": 41.372,
        "rows_per_second": 91238.4,
        "epochs_run": 10,
        "epochs_planned": 12,
        "stopped_early": True,
        "selected": "best",
        "selected_epoch": 8,
        "reproducible_noise": False,
        "job_digest": "5f2b9c0e8d7a41f6b3c2d1e0f9a8b7c6",
        "folder": "runs/adult-20260301-140509",
    } | other


def _party(name: str, role: str, draw: random.Random, width: int | None = 32) -> dict[str, Any]:
    return {
        "name": name,
        "role": role,
        "rows_own": draw.randint(45_000, 49_000),
        "numeric": draw.randint(2, 7),
        "categorical": draw.randint(3, 9),
        "width": width,
        "parameters": draw.randint(9_000, 60_000),
        "bytes_sent": draw.randint(10**7, 10**9),
        "bytes_received": draw.randint(10**7, 10**9),
        "traffic": {kind: list(both) for kind, both in TRAFFIC.items()} if role == "active" else {},
    }


def _leak(run: str, party: str, message: str, attack: str, draw: random.Random) -> dict[str, Any]:
    auc = 0.5 + (CEILING[run] - 0.5) * draw.uniform(0.15, 1)
    half = draw.uniform(0.004, 0.02)
    spectral = attack == "spectral"
    return {
        "run": run,
        "protections": list(RUNS[run]),
        "party": party,
        "message": message,
        "attack": attack,
        "leak": auc,
        "low": max(0.5, auc - half),
        "high": min(1.0, auc + half),
        "epoch": draw.randint(1, 10),
        "epochs_seen": 10,
        "pooled_auc": auc - draw.uniform(0, 0.03),
        "batch_auc": auc,
        "first_epoch_leak": max(0.5, auc - draw.uniform(0, 0.02)),
        "last_epoch_leak": 0.5 + (auc - 0.5) * 0.8713,
        "assigned_accuracy": 0.4444 + auc / 3 if spectral else None,
        "batches": 137,
        "other_aucs": {"absolute projection": draw.uniform(0.5, 0.6)} if spectral else {},
        "hard_accuracy": draw.uniform(0.5, 0.9) if spectral else None,
        "hard_auc": draw.uniform(0.5, 0.9) if spectral else None,
        "rows": draw.randint(8000, 8400),
        "positives": draw.randint(1800, 2100),
        "knowledge": ["known_positive"] if attack == "direction" else ["positive_share"],
    }


def _epoch(run: str, epoch: int, columns: list[str], draw: random.Random) -> dict[str, Any]:
    top = CEILING[run]
    return {
        "run": run,
        "epoch": epoch,
        "loss": 0.32 + 0.3 * math.exp(-epoch / 3) + draw.uniform(0, 0.01) + (0.1 if "dp" in run else 0),
        "seconds": draw.uniform(2.4, 2.9),
        "rows_per_second": draw.uniform(80_000, 99_000),
        "metrics": {
            "auc": 0.91 - 0.06 * math.exp(-epoch / 2) - draw.uniform(0, 0.004),
            "log_loss": 0.33 + 0.1 * math.exp(-epoch / 2) + draw.uniform(0, 0.004),
            "accuracy": 0.85 - 0.03 * math.exp(-epoch / 2) - draw.uniform(0, 0.004),
        },
        "leak": {key: 0.5 + (top - 0.5) * draw.uniform(0.4, 1) * math.exp(-epoch / 30) for key in columns},
    }


def _utility(draw: random.Random) -> dict[str, Any]:
    rows = []
    for kind, parties, auc in [
        ("this run", [], 0.9042),
        ("undefended", [], 0.9127),
        ("centralised", [], 0.9151),
        ("alone", ["bank"], 0.8313),
    ]:
        metrics = {"auc": auc, "log_loss": draw.uniform(0.3, 0.4), "accuracy": draw.uniform(0.8, 0.87)}
        row = {"run_kind": kind, "parties": parties, "metrics": metrics}
        rows.append(row | {"low": auc - 0.0071, "high": auc + 0.0068})
    chance = {"auc": 0.5, "log_loss": 0.5513, "accuracy": 0.7607}
    rows.append({"run_kind": "chance", "metrics": chance, "low": None, "high": None})
    return {"metric": "auc", "higher_is_better": True, "rows": rows}


def _quitting(parties: list[str], draw: random.Random) -> dict[str, Any]:
    rows = []
    for absent in [[], *([party] for party in parties), parties]:
        auc = 0.9042 - 0.03 * len(absent) ** 2 - draw.uniform(0, 0.004)
        metrics = {"auc": auc, "log_loss": draw.uniform(0.3, 0.6), "accuracy": draw.uniform(0.5, 0.87)}
        contributed = ["bank", *(party for party in parties if party not in absent)]
        beside = {"undefended": auc - 0.0403} | ({"retrained": auc + 0.0107} if len(absent) == 1 else {})
        row = {"absent": list(absent), "contributed": contributed, "metrics": metrics, "references": beside}
        rows.append(row | {"low": auc - 0.0081, "high": auc + 0.0079})
    return {"heads": 8, "extra_parameters": 12345, "rows": rows}


def _worths(names: list[str], draw: random.Random) -> list[dict[str, Any]]:
    values = [(name, draw.uniform(0.55, 0.88)) for name in names]
    return [{"variant": name, "value": at, "low": at - 0.0203, "high": at + 0.0197} for name, at in values]


def _completions(parties: list[str], draw: random.Random) -> list[dict[str, Any]]:
    frozen, tuned = "frozen MLP, supervised", ["tuned MLP_sim, MixMatch", "tuned MLP_sim, supervised"]
    found = []
    for party in parties:
        for labels, every in ((40, False), (39074, True)):
            names = tuned[1:] if every else tuned
            scratch = _worths(names, draw)
            for run in ("this run", "undefended"):
                part = {"run": run, "party": party, "attack": "model_completion", "labels": labels}
                known = {"all_labels": every, "scratch": scratch, "knowledge": ["auxiliary_labels"]}
                found.append(part | known | {"variants": _worths([frozen, *names], draw)})
    return found


def _features(parties: list[str], draw: random.Random) -> list[dict[str, Any]]:
    found = []
    for party in parties[:2]:
        for run, top in (("this run", 0.31), ("undefended", 0.92)):
            inverted = [
                {"column": name, "value": draw.uniform(0.1, top), "baseline": -draw.uniform(0.001, 0.01)}
                | {"mse": draw.uniform(0.05, 0.2), "baseline_mse": draw.uniform(0.3, 0.5)}
                for name in ("age", "sex")
            ]
            asked = [
                {"column": name, "value": draw.uniform(0.55, 0.97), "baseline": 0.5}
                | {"accuracy": draw.uniform(0.7, 0.95), "majority": draw.uniform(0.5, 0.7)}
                for name in ("age", "sex")
            ]
            for attack, measure, column, columns, further in (
                ("inversion", "r2", "", inverted, {"mse": 0.1234, "baseline_mse": 0.4321}),
                ("attribute", "auc", "sex", asked, {"accuracy": draw.uniform(0.6, 0.9), "majority": 0.5678}),
                ("membership", "auc", "", [], {"accuracy": 0.5123, "tpr_at_1_percent_fpr": draw.uniform(0.01, 0.03)}),
            ):
                value = draw.uniform(0.1, 0.9)
                part = {"run": run, "party": party, "attack": attack, "release": "epoch 10, the last recorded"}
                part |= {"known": draw.randint(900, 1100), "rows": draw.randint(7000, 7200), "metric": measure}
                part |= {"value": value, "low": value - 0.0113, "high": value + 0.0117, "baseline": 0.4871}
                part |= {"column": column, "columns": columns, "metrics": further}
                found.append(part | {"knowledge": []})
    return found


def _layer_leak(leak: float, epoch: int) -> dict[str, Any]:
    values = {"leak": leak, "epoch": epoch, "batch_auc": 1 - leak, "last_epoch_leak": 0.9 * leak}
    return {"attack": "spectral", **values}


def _layers(parties: list[str], draw: random.Random) -> list[dict[str, Any]]:
    layers = []
    for run in ("this run", "undefended"):
        for party in parties:
            for index, layer in enumerate(["input", "linear 1", "relu 1", "linear 2", "cut"]):
                auc = 0.55 + (CEILING[run] - 0.55) * index / 6 + draw.uniform(0, 0.03)
                side = {
                    "run": run,
                    "party": party,
                    "side": "passive",
                    "layer": layer,
                    "index": index,
                    "attack": "spectral",
                }
                layers.append(
                    side
                    | {"leak": auc, "batch_auc": 1 - auc, "last_epoch_leak": 0.9 * auc, "epoch": draw.randint(1, 10)}
                )
        for index, layer in enumerate(["concatenation", "top linear 1", "logits"], start=5):
            auc = 0.8 + 0.04 * (index - 5) + draw.uniform(0, 0.02)
            side = {"run": run, "party": "bank", "side": "active", "layer": layer, "index": index}
            layers.append(side | _layer_leak(auc, draw.randint(1, 10)))
    return layers


PROTECTIONS = [
    {
        "name": "label_dp",
        "party": "bank",
        "protects": "labels",
        "reference": "Warner 1965; Ghazi et al. 2021, algorithm 1",
        "settings": {"eps": 1.0},
        "unit": "rows",
        "covered": 39074,
        "sent": 39074,
        "changed": 10508,
        "metrics": {"labels_flipped": 10508.0, "flip_probability": 0.26894},
        "formal": True,
        "statement": "the labels of the training rows of bank, towards census, employer: "
        "1-label differential privacy per row",
    },
    {
        "name": "max_norm",
        "party": "bank",
        "protects": "labels",
        "reference": "Li et al. 2022, section 4.1",
        "settings": {},
        "unit": "gradients",
        "covered": 3060,
        "sent": 3060,
        "changed": 3058,
        "metrics": {"signal_to_noise": 0.1173, "rows_of_zero_norm": 12.0},
        "formal": False,
        "statement": "none, empirical: the noise is scaled to each batch",
    },
]
FINDINGS = [
    {
        "code": "CL301",
        "severity": "note",
        "title": "The worst epoch is the first",
        "detail": "norm on gradients of census leaks most in epoch 1, before the model has learnt.",
        "remedy": "",
    },
    {
        "code": "CL101",
        "severity": "error",
        "title": "A gate failed",
        "detail": "label_auc is 0.612 at census/gradient/spectral; the limit is 0.6.",
        "remedy": "Lower eps of label_dp, or add a protection of the gradient.",
    },
    {
        "code": "CL204",
        "severity": "warning",
        "title": "The attack has no power on the undefended twin",
        "detail": "direction on gradients of insurer stays within 0.02 of chance without protections as well.",
        "remedy": "Read its figure as untested, not as safe.",
    },
]
EMPIRICAL = [
    {
        "protection": "label_dp",
        "party": "bank",
        "protects": "labels",
        "epsilon": 1.0,
        "delta": 0.0,
        "lower_bound": 0.9547,
        "detectable": 7.4049,
        "confidence": 0.999,
        "canaries": 49999,
        "releases": 10,
    },
]


def _quality(draw: random.Random) -> dict[str, Any]:
    bins = [
        {"predicted": 0.05 + 0.1 * index, "observed": min(1.0, 0.04 + 0.1 * index + draw.uniform(-0.03, 0.05))}
        | {"rows": 488 + index % 2}
        for index in range(10)
    ]
    return {
        "metrics": {"gini": 0.8146, "ks": 0.6511, "average_precision": 0.7712, "brier": 0.1034}
        | {"calibration_error": 0.0231},
        "bins": bins,
        "confusions": [
            {"threshold": 0.5, "basis": "more likely than not", "counts": [[3459, 256], [452, 717]]},
            {"threshold": 0.2393, "basis": "the share of positive training rows", "counts": [[2983, 732], [185, 984]]},
        ],
    }


GATES = [
    {"name": "label_auc", "limit": 0.6, "worst": 0.6124, "where": "census/gradient/spectral, epoch 3", "passed": False},
    {"name": "utility_drop", "limit": 0.02, "worst": 0.0085, "where": "against undefended", "passed": True},
]


def binary() -> dict[str, Any]:
    """Three passive parties, four runs, ten epochs, eight layers on the longest way through."""
    draw = random.Random(7)
    passive = ["census", "employer", "insurer"]
    columns = [f"{party}/{message}/{attack}" for party in passive for message, attack in ATTACKS]
    return {
        "run": _run(),
        "task": {"kind": "binary", "classes": ["<=50K", ">50K"], "positive_share": 0.2393},
        "data": {"common": 48842, "train": 39074, "validation": 4884, "test": 4884},
        "parties": [_party("bank", "active", draw, None), *(_party(name, "passive", draw) for name in passive)],
        "utility": _utility(draw),
        "quality": _quality(random.Random(14)),
        "departures": _quitting(passive, random.Random(11)),
        "completions": _completions(passive, random.Random(12)),
        "features": _features(passive, random.Random(13)),
        "history": [_epoch(run, epoch, columns, draw) for run in RUNS for epoch in range(1, 11)],
        "leaks": [_leak(run, p, m, a, draw) for run in RUNS for p in passive for m, a in ATTACKS],
        "layers": _layers(passive, draw),
        "protections": copy.deepcopy(PROTECTIONS),
        "guarantees": copy.deepcopy(EMPIRICAL),
        "gates": copy.deepcopy(GATES),
        "findings": copy.deepcopy(FINDINGS),
        "limits": ["model_completion needs auxiliary labels, which this job does not give the attacker."],
        "job": JOB,
    }


def regression() -> dict[str, Any]:
    """No leaks, no protections, no gates, and a metric of which less is better."""
    draw = random.Random(8)
    rows = [
        {"run_kind": "this run", "metrics": {"mae": 12.417, "r2": 0.613}, "low": 12.1, "high": 12.7},
        {"run_kind": "alone", "parties": ["grid"], "metrics": {"mae": 17.92, "r2": -0.04}, "low": 17.5, "high": 18.3},
        {"run_kind": "chance", "metrics": {"mae": 19.03, "r2": 0.0}},
    ]
    history = [
        {"run": "this run", "epoch": e, "loss": 900 / e, "seconds": 1.5, "rows_per_second": 20_111.0}
        | {"metrics": {"mae": 12 + 9 / e, "r2": 0.6 - 0.7 / e}}
        for e in range(1, 7)
    ]
    return {
        "run": _run(
            name="demand", epochs_run=6, epochs_planned=6, stopped_early=False, selected="last", selected_epoch=6
        ),
        "task": {"kind": "regression", "classes": [], "positive_share": None},
        "data": {"common": 9001, "train": 7201, "validation": 900, "test": 900},
        "parties": [_party("grid", "active", draw, None), _party("weather", "passive", draw)],
        "utility": {"metric": "mae", "higher_is_better": False, "rows": rows},
        "history": history,
        "limits": ["norm, direction and spectral need a task of kind binary, got regression."],
        "job": "name: demand\ntask: regression\n",
    }


def multiclass() -> dict[str, Any]:
    """One passive party, no undefended twin, a single epoch."""
    draw = random.Random(9)
    metrics = {"accuracy": 0.931, "log_loss": 0.2171, "macro_f1": 0.9123}
    epoch = {"run": "this run", "epoch": 1, "loss": 0.81, "seconds": 75.2, "rows_per_second": 4012.0}
    own = {"run_kind": "this run", "metrics": metrics, "low": 0.9, "high": 0.96}
    leak = _leak("this run", "mobile operator", "embedding", "model_completion", draw)
    return {
        "run": _run(name="digits", epochs_run=1, epochs_planned=1, selected_epoch=1, reproducible_noise=True),
        "task": {"kind": "multiclass", "classes": [str(digit) for digit in range(10)], "positive_share": None},
        "data": {"common": 1797, "train": 1437, "validation": 180, "test": 180},
        "parties": [_party("archive", "active", draw, None), _party("mobile operator", "passive", draw)],
        "utility": {"metric": "accuracy", "rows": [own]},
        "history": [epoch | {"metrics": metrics, "leak": {"mobile operator/embedding/model_completion": 0.5521}}],
        "leaks": [leak | {"epoch": 1, "epochs_seen": 1, "protections": ["label_dp"]}],
        "protections": copy.deepcopy(PROTECTIONS[:1]),
        "job": "name: digits\n",
    }


def broken() -> dict[str, Any]:
    """A run that diverged, in which little could be measured."""
    raw = binary()
    raw["utility"]["rows"][0]["metrics"]["auc"] = float("nan")
    raw["utility"]["rows"][1]["metrics"] = {"auc": None}
    raw["utility"]["rows"][2].update(low=float("nan"), high=float("nan"))
    for part in raw["history"][3:10]:
        part["loss"] = float("nan")
        part["metrics"] = dict.fromkeys(part["metrics"], float("inf"))
        part["leak"] = dict.fromkeys(part["leak"], None)
    raw["departures"]["rows"][1]["metrics"]["auc"] = float("nan")
    for worth in raw["completions"][0]["variants"] + raw["completions"][1]["scratch"][:1]:
        worth.update(value=float("nan"), low=None, high=float("nan"))
    raw["features"][0].update(value=float("nan"), low=None, baseline=None, metrics={"mse": float("inf")})
    raw["features"][1]["columns"][0].update(value=float("nan"), accuracy=None)
    raw["departures"]["rows"][2].update(low=float("nan"), high=None, references={"undefended": float("nan")})
    raw["leaks"][2].update(low=None, high=float("nan"), pooled_auc=float("nan"), batch_auc=None)
    raw["protections"] = [
        PROTECTIONS[0] | {"metrics": {"ratio": float("inf")}, "changed": 0},
        PROTECTIONS[1] | {"covered": 9, "changed": 7},
    ]
    return raw


HOSTILE = "</script><script>alert(1)</script>"


def hostile() -> dict[str, Any]:
    """Names that would break a page, a terminal, XML or a Markdown table that trusts them."""
    raw = binary()
    party = f'{HOSTILE}"onload="x" Ωμέγα 銀行 🏦'
    text = str(party)
    raw["parties"][1]["name"] = text
    for part in raw["completions"]:
        part["party"] = text if part["party"] == "census" else part["party"]
    for part in raw["features"]:
        part["party"] = text if part["party"] == "census" else part["party"]
        part["column"], part["release"] = f"{text} {part['column']}", f"{text} {part['release']}"
        part["columns"] = [column | {"column": f"{HOSTILE} {column['column']}"} for column in part["columns"]]
    for row in raw["departures"]["rows"]:
        for key in ("absent", "contributed"):
            row[key] = [text if name == "census" else name for name in row[key]]
    for leak in raw["leaks"]:
        leak["party"] = text if leak["party"] == "census" else leak["party"]
    for part in raw["history"]:
        part["leak"] = {key.replace("census", text): value for key, value in part["leak"].items()}
    for layer in raw["layers"]:
        layer["party"] = text if layer["party"] == "census" else layer["party"]
        layer["layer"] = f"<img src=x onerror=alert(1)> {layer['layer']}"
    raw["run"]["name"] = "a | b\x1b[31m [bold red]x[/] <b>&amp;"
    raw["gates"] = [gate | {"where": f"{text}/gradient\x00\x1b[2J"} for gate in raw["gates"]]
    raw["findings"][0]["detail"] = f"{HOSTILE} [link=x]y[/link] {{{{ 7 * 7 }}}} \u2028 | `code`"
    raw["job"] = f"name: '{HOSTILE}'\n# --> ]]> &lt; üñí\n"
    return raw


ONE = {"history", "completions", "features", "protections"}
"""Lists of which one item shows all that two do."""


def short(*whole: str) -> dict[str, Any]:
    """`binary` with one or two items of each list but those named: a page of it takes an eighth of the time."""
    report: dict[str, Any] = json.loads(_short_json(*whole))
    return report


@cache
def _short_json(*whole: str) -> str:
    return json.dumps({key: value if key in whole else _shortened(value, key) for key, value in binary().items()})


def _shortened(value: Any, key: str) -> Any:
    """One or two items of each list of records, and of each list in them."""
    if isinstance(value, dict):
        return {name: _shortened(each, name) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_shortened(each, "") for each in value[: 1 if key in ONE else 2]]
    return value
