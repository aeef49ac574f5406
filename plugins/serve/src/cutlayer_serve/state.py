"""The state of the active party's service, for the page and for readiness."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict
from typing import Any

import numpy as np

from cutlayer.serving.given_columns import request_kinds
from cutlayer_serve.answering import Batcher
from cutlayer_serve.peer import Peer
from cutlayer_serve.peers import Peers
from cutlayer_serve.published_columns import request_example, request_schema
from cutlayer_serve.served_model import ServedModel
from cutlayer_serve.versions import Versions


def state_of(versions: Versions, peers: Peers) -> dict[str, Any]:
    """Parties, versions, and the utility that the run measured with those who are present."""
    model = versions.current.model
    here = [
        name for name in model.parties if name == model.active or is_asked(peers.get(name, model.tags.get(name, "")))
    ]
    subset = model.subset(np.array([name in here for name in model.parties]))
    utility = subset.utility
    return {
        "active": model.active,
        "task": model.task.kind if model.task.target == "value" else model.task.target,
        "version": model.version,
        "versions": [_version(batcher, peers) for batcher in versions.loaded],
        "parties": [_party(model, name, peers) for name in model.parties],
        "required": sorted(model.required),
        "drift": [asdict(row) for row in model.drift.rows()],
        "deadline_ms": versions.config.deadline_ms,
        "expected": {
            "contributed": list(subset.contributed),
            "metric": model.task.metric,
            "value": None if utility is None else utility.metrics.get(model.task.metric),
        },
    }


def missing_parties(model: ServedModel, peers: Peers) -> list[str]:
    """Parties whose absence keeps a version from answering: required ones, or all of them."""
    away = [name for name in model.passives if not is_asked(peers.get(name, model.tags[name]))]
    required = [name for name in away if name in model.required]
    nobody = len(away) == len(model.passives) and model.active not in model.parties
    return required or (away if nobody else [])


def is_asked(peer: Peer | None) -> bool:
    """Whether a party is connected, and asked for rows rather than probed."""
    return peer is not None and peer.connected and not peer.breaker.open


def _version(batcher: Batcher, peers: Peers) -> dict[str, Any]:
    model = batcher.model
    return {
        "version": model.version,
        "run": model.trained.folder.path.name,
        "parts": model.tags,
        "connected": [name for name in model.passives if peers.get(name, model.tags[name]) is not None],
        "batches": batcher.batches,
        "rows": batcher.batched_rows,
    }


def _party(model: ServedModel, name: str, peers: Peers) -> dict[str, Any]:
    if name == model.active:
        return {"name": name, "role": "active", "state": "present", "latency_ms": {}, "connections": 0}
    peer = peers.get(name, model.tags[name])
    state = "absent" if peer is None else "probed" if peer.breaker.open else "present"
    seconds = np.array(peer.seconds) if peer is not None and peer.seconds else np.zeros(0)
    latency = {f"p{q}": round(float(np.quantile(seconds, q / 100)) * 1000, 2) for q in (50, 99)} if len(seconds) else {}
    return {
        "name": name,
        "role": "passive",
        "state": state,
        "latency_ms": latency,
        "connections": peers.connections.get(name, 0),
    }


def openapi_of(model: ServedModel, general: Mapping[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with the columns of a version, and a request that can be sent as it is.

    Args:
        model: The version.
        general: The document of the service without a version; it is not changed.
    """
    document = deepcopy(dict(general))
    encoder = model.trained.model.encoder
    content = document["paths"]["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]
    columns = None if encoder is None else request_schema(encoder)
    given = [] if columns is None else [columns]
    about = content["schema"]["properties"]["columns"]
    about["anyOf"] = [*given, {"type": "null"}]
    content["example"] = request_example(encoder, model.id_rule)
    return document


def schema_of(model: ServedModel) -> dict[str, Any]:
    """The columns of the active party that a request may give, and their kinds."""
    encoder, task = model.trained.model.encoder, model.task
    positive = {"positive": task.positive_class} if task.kind == "binary" else {}
    return {
        "version": model.version,
        "party": model.active,
        "columns": {} if encoder is None else request_kinds(encoder),
        "classes": list(model.outputs),
        **positive,
    }
