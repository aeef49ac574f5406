"""The fit of a top model that is no network: at once, to the rows that the passive parties have released."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cutlayer.data.quantiles import QUANTILE_SUFFIX
from cutlayer.data.split import Split
from cutlayer.kernels.rows.small_groups import MIN_ROWS
from cutlayer.models.top_estimators.importance import column_importance, rows_for
from cutlayer.models.top_estimators.kinds import fits_of
from cutlayer.models.top_estimators.layout import Layout
from cutlayer.models.top_estimators.pilot import MAX_POOL, Pool, own_predictions, partner_pilot
from cutlayer.models.top_estimators.quiet import restoring_process_state
from cutlayer.models.top_estimators.result import ColumnImportance, FitResult, PartnerPilot
from cutlayer.models.top_estimators.rows import FitRows
from cutlayer.models.top_estimators.sample import MAX_CELLS, Sample
from cutlayer.models.top_estimators.top import FittedTop
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.session.passives import Passives
from cutlayer.storage.row_arrays import gathered_rows
from cutlayer.storage.row_tensors import rows_of


def fit_top(
    setup: ActiveSetup, passives: Passives, split: Split, seed: int, *, keeps_validation: bool = False
) -> FitResult:
    """Fit the top model of a setup in place.

    Validation rows are fitted to as well, since a fitted model is chosen by cross-validation, unless they are what the
    run is measured on, intervals are made on them, or training labels are drawn: the true labels of other rows would
    then be worth more.

    Args:
        setup: Labels and models.
        passives: The passive parties, whose rows are all released.
        split: Rows for training, validation and testing.
        seed: Seed of the job.
        keeps_validation: Whether validation rows are left out of the fit, for intervals.
    """
    top = setup.top
    if not isinstance(top, FittedTop):
        raise TypeError(f"expected a top model that is fitted at once, got {type(top).__name__}")
    is_drawn = setup.labels_are_drawn
    rows = split.train
    if len(split.test) and not is_drawn and not keeps_validation:
        rows = np.sort(np.concatenate([split.train, split.validation]))
    limit = max(1, MAX_CELLS // sum(setup.widths.values()))
    if len(rows) > limit:
        rows = np.sort(np.random.default_rng(seed).choice(rows, limit, replace=False))
    chosen = torch.from_numpy(rows)
    return top.fit(
        _columns(setup, passives, chosen),
        rows_of(setup.labels if is_drawn else setup.truth, chosen),
        setup.training_loss,
        own=next((name for name in setup.widths if name not in passives.released), None),
        inputs=setup.inputs,
        seed=seed,
        weights=None if setup.weights is None else setup.weights[chosen],
        groups=None if setup.groups is None else setup.groups[chosen],
    )


def column_importances(
    setup: ActiveSetup, passives: Passives, held_out: Tensor, seed: int
) -> tuple[ColumnImportance, ...]:
    """Loss that each column of each party prevents, of a fitted top model, on held-out rows that all parties have.

    None where few of the rows are such.

    Args:
        setup: Labels and models.
        passives: The passive parties, whose rows are all released.
        held_out: Row numbers, int64 (n,).
        seed: Seed of the job.
    """
    top, spec = setup.top, setup.store.columns if setup.store else None
    if not isinstance(top, FittedTop) or passives.presence.lost:
        return ()
    names = [name.removesuffix(QUANTILE_SUFFIX) for name in spec.category_names] + [*spec.number_names] if spec else []
    every = len(held_out)
    for name in passives.released:
        held_out = held_out[~passives.released[name][held_out, 0].isnan()]
    if len(held_out) < max(1, min(every, MIN_ROWS)):  # whose labels could be read from the losses
        return ()
    some = np.random.default_rng(seed).permutation(len(held_out))[: rows_for(sum(setup.widths.values()))]
    rows = held_out[torch.from_numpy(np.sort(some))]
    columns = {name: passives.local.placed(part) for name, part in _columns(setup, passives, rows).items()}
    return column_importance(top, columns, setup.truth_of(rows), setup.task, names, seed, passives.graded_parties)


def estimate_pilots(setup: ActiveSetup, passives: Passives, split: Split, seed: int) -> tuple[PartnerPilot, ...]:
    """What each passive party would add at full size, after a pilot; none after a full run.

    Args:
        setup: Labels and models.
        passives: The passive parties, which have released some of their rows.
        split: Rows for training, validation and testing.
        seed: Seed of the job.
    """
    top = setup.top
    names = [name for name in passives.released if name in passives.held.whole]
    if not names or not isinstance(top, FittedTop) or top.fitted is None:
        return ()
    sent = np.unique(np.concatenate([np.flatnonzero(passives.held.by_party[name] >= 0) for name in names]))
    others = np.setdiff1d(split.train, sent)
    more = np.random.default_rng(seed).permutation(others)[: max(0, MAX_POOL - len(sent))]
    rows = torch.from_numpy(np.sort(np.concatenate([sent, more])))
    groups = None if setup.groups is None else setup.groups[rows].numpy()
    pool = Pool(_own_rows(setup, rows), setup.truth_of(rows), setup.task, groups, len(split.train))
    fits, graded = fits_of(top.config), passives.graded_parties
    with restoring_process_state():
        own = own_predictions(pool, fits, top.fitted.alone or top.fitted, seed)
        return tuple(
            partner_pilot(pool, own, name, rows_of(passives.released[name], rows), fits, seed, graded=name in graded)
            for name in names
        )


def _own_rows(setup: ActiveSetup, rows: Tensor) -> FitRows:
    """Rows with the label owner's columns alone, as a fitted top model reads them."""
    inputs, columns = setup.inputs, dict[str, Tensor]()
    own = None if setup.store is None else "own"
    if setup.store is not None:
        codes, numbers = setup.store.gather(rows)
        columns["own"] = torch.cat([codes.float(), numbers], dim=1)
    layout = Layout({name: part.shape[1] for name, part in columns.items()}, own, len(inputs.cardinalities))
    columns = columns or {"": torch.empty(len(rows), 0)}
    weights = None if setup.weights is None else setup.weights[rows]
    labels, cardinalities = setup.truth_of(rows), inputs.cardinalities
    return Sample.of(layout, columns, labels, setup.training_loss, cardinalities, weights, None).rows(())


def _columns(setup: ActiveSetup, passives: Passives, rows: Tensor) -> dict[str, Tensor]:
    """Columns of some rows that a fitted top model reads, by party."""
    columns: dict[str, Tensor] = {}
    for name in setup.widths:
        if name in passives.released:
            columns[name] = torch.from_numpy(gathered_rows(passives.released[name].numpy(), rows.numpy()))
        elif setup.store is not None:
            codes, numbers = setup.store.gather(rows)
            columns[name] = torch.cat([codes.float(), numbers], dim=1)
    return columns
