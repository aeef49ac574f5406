"""Answers of the models that a run ended with, with or without some of the parties."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.config import near_miss
from cutlayer.data.party_data import PartyTable
from cutlayer.data.store import Store
from cutlayer.errors import DataError
from cutlayer.estimator.tables import Tables, check_mapping, check_order, check_rows, read_tables
from cutlayer.serving import PredictionReleases
from cutlayer.serving.models import RowEmbedder, TrainedModels


@dataclass(frozen=True)
class Evaluation:
    """How good the answers to some rows were.

    Attributes:
        metrics: Metrics of the task, as in the report.
        contributed: Parties whose features the answers rest on, in the job's order.
        absent: Passive parties that were left out.
        rows: Number of answered rows.
    """

    metrics: Mapping[str, float]
    contributed: tuple[str, ...]
    absent: tuple[str, ...]
    rows: int


def encode(models: TrainedModels, tables: Tables, absent: Collection[str]) -> dict[str, Store]:
    """Encoded columns of the parties that answer, in the job's order; nothing is released by it.

    Raises:
        DataError: A table is missing, of no party, or without what was trained on; or the tables differ in their rows.
    """
    check_mapping(tables)
    needed = [name for name in models.encoders if name not in absent]
    known = [*dict.fromkeys((models.active, *models.encoders))]
    if stray := next((name for name in tables if name not in known), None):
        raise DataError(f"no party of the model is called {stray!r}{near_miss(str(stray), known)}")
    missing = [name for name in needed if tables.get(name) is None]
    if missing:
        wanted, got = f"a table of {', '.join(needed)}", f"none of {', '.join(missing)}"
        passive = missing != [models.active]
        raise DataError.expected(wanted, got, "name who is absent in `absent`" if passive else "")
    check_order({name: tables[name] for name in needed})
    chosen = read_tables(tables, needed)
    check_rows(chosen)
    return {name: PartyTable(name, chosen[name], encoder=models.encoders[name]).encode_all() for name in needed}


def embed(
    models: TrainedModels, stores: Mapping[str, Store], servings: Mapping[str, PredictionReleases]
) -> dict[str, Tensor]:
    """Embeddings (n, width) of all parties that have features; zeros for parties without columns here.

    Args:
        models: Trained models of all parties.
        stores: Encoded rows by party, from `encode`.
        servings: Releases of the passive parties by name; the embeddings of other parties are not protected.

    Raises:
        ConfigError, BudgetExceeded: A party has no prediction left.
    """
    rows = next(iter(stores.values())).rows
    embeddings: dict[str, Tensor] = {}
    for name, bottom in models.bottoms.items():
        if name not in stores:
            embeddings[name] = torch.zeros(rows, bottom.width)
        elif name in servings:
            embeddings[name] = servings[name].release(RowEmbedder(bottom, stores[name]), rows)
        else:
            with torch.no_grad():
                embeddings[name] = RowEmbedder(bottom, stores[name])(torch.arange(rows))
    return embeddings
