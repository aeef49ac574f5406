"""Cost of a job, from the shapes of its tables and three timed steps; nothing is trained or stored."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutlayer.accounting import Total
from cutlayer.alignment.local_tables import check_ids, matched_ids
from cutlayer.config import FrozenModel, Job
from cutlayer.config.device import Precision
from cutlayer.config.load import with_device
from cutlayer.config.phases import Phase, grades_rows
from cutlayer.data.align import Positions
from cutlayer.data.batches import Schedule, schedule_of
from cutlayer.data.party_data import PartyTable
from cutlayer.data.prepared import Prepared
from cutlayer.data.profile import ColumnProfile
from cutlayer.data.split import Split, check_no_empty_part
from cutlayer.errors import DataError
from cutlayer.jobs.cautions import drawn_labels_worth, job_cautions, leak_notes, readable_columns, shared_row_cautions
from cutlayer.jobs.check import check_job
from cutlayer.jobs.matching import KeyForecast, key_forecasts, lacking_rows, positions_of_run
from cutlayer.kernels.rows.packed_rows import row_bytes
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.models import imports_of, resolved_section, suits_rare_categories
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.protections.grade_dp import epsilon_of
from cutlayer.storage.row_arrays import gathered_rows
from cutlayer.training.all_runs import forecast_all_runs
from cutlayer.training.process import run_threads
from cutlayer.training.run_ledger import chain_of, ledger_of
from cutlayer.training.tables import open_tables

if TYPE_CHECKING:
    from cutlayer.alignment.held_rows import HeldRows
    from cutlayer.training.joint import JointModel


TIMED_STEPS = 3
SHORT_STEP_ROWS, LONG_STEP_SECONDS = 8, 2.0
"""Rows of the first timed step; if a whole one would take longer than that, its time is estimated from it."""
ADAM_COPIES = 4
"""Weights, gradients and two moments."""
LIBRARIES_BYTES = 550 * 10**6
"""Peak of a process that trains a job of a few rows: measured with torch 2.13, most of it torch and pyarrow."""
FIT_SECONDS, FIT_SECONDS_PER_NUMBER = 1.0, 2e-6
"""Time of a fit at once: of a few rows, and for each number that is fitted to. Rough: it depends on the columns."""
GRADE_SECONDS_PER_NUMBER, GRADE_BYTES_PER_NUMBER = 4e-6, 60
"""The same of a partner's fit to drawn labels, one model without each fold, and its peak; from a million rows."""
GRADE_BYTES = 200 * 10**6
"""What a job of grades needs besides, whatever its rows: scikit-learn and SciPy, and the audit's forests."""
FIT_BYTES_PER_NUMBER = 40
"""Peak of a fit for each number that is fitted to: as released, as codes and numbers, and boosting's own copies."""
ALIGNMENT_BYTES = 64
"""Peak of matching the ids, for each row of each party: digests in one array (16), sorted (16), orders and counts."""


class PartyForecast(FrozenModel):
    """One party's share of the cost.

    Attributes:
        name: Name of the party.
        role: `active` or `passive`.
        rows: Number of rows of its own table.
        categorical: Number of categorical inputs after encoding; the quantiles of a number are one.
        numeric: Number of numeric inputs after encoding, pixels included.
        bottom: Kind of its bottom model, `auto` resolved; `None` without features.
        width: Number of columns of its embedding; `None` without features.
        parameters: Number of trained numbers.
        bytes_per_epoch: Bytes that it sends in an epoch: embeddings upwards, or cut gradients downwards.
        bytes_warmup: Bytes that it sends in each warm-up epoch.
        bytes_once: Bytes that it sends if it releases each row once.
        store_bytes: Size of its encoded columns on disk.
        left_out: Number of rows of its file that are no rows of the table, by the reason.
        repeated_keys: With several keys, number of rows of each that other rows have as well.
    """

    name: str
    role: str
    rows: int
    categorical: int
    numeric: int
    bottom: str | None
    width: int | None
    parameters: int
    bytes_per_epoch: int
    bytes_warmup: int
    bytes_once: int
    store_bytes: int
    left_out: Mapping[str, int] = {}
    repeated_keys: tuple[int, ...] = ()


class Forecast(FrozenModel):
    """The whole job's cost; times and memory are estimates, the other byte counts are exact.

    Attributes:
        rows: Number of rows: those that all parties have, or all of the active party.
        common: Number of rows that all parties have.
        train: Number of training rows.
        validation: Number of validation rows.
        test: Number of test rows.
        epochs: Maximum number of epochs.
        warmup_epochs: Number of epochs before a single release.
        steps_per_epoch: Number of steps of an epoch.
        threads: Number of threads of the timed steps, which run on the CPU.
        devices: What each party would train on, by name; with the reason where the setting is `auto`.
        precision: Precision of the layers of all models.
        parties: Cost of each party, in the job's order.
        memory_bytes: Estimated peak of the process that runs all parties, the libraries included: see `_peak_memory`.
        transcript_bytes: Maximum size of all transcripts.
        step_operations: Floating-point operations of a step in linear maps and convolutions, forwards and backwards;
            0 where there are no steps.
        seconds_per_epoch: Estimated time of an epoch, in single precision whatever the job's.
        fits_top: Whether the top model is fitted at once, so that this is roughly the time of all fits.
        guarantees: Statement of each protection.
        readable: What the active party can read of the columns of each passive party, by name.
        notes: Notes on the leaks that the settings imply, each after the name of its protection.
        warnings: What is accepted and perhaps not meant, each after the name of what it is about.
        columns: What each column of the tables here was taken for.
        totals: Total cost of each party in privacy, if its protections have one.
        all_runs: Total cost in privacy with all earlier runs on the same rows, of each party that has earlier runs.
        imports: Classes of users that building the models imports, as `package.module:Class`, by path in the job.
        keys: What several keys match with each passive party; empty where a single one identifies rows.
        lacking: Number of rows of the active party that each passive party lacks, by name.
    """

    rows: int
    common: int
    train: int
    validation: int
    test: int
    epochs: int
    warmup_epochs: int
    steps_per_epoch: int
    threads: int
    devices: Mapping[str, str]
    precision: Precision
    parties: tuple[PartyForecast, ...]
    memory_bytes: int
    transcript_bytes: int
    step_operations: float
    seconds_per_epoch: float
    fits_top: bool
    guarantees: tuple[str, ...]
    readable: Mapping[str, str]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    columns: tuple[ColumnProfile, ...] = ()
    totals: tuple[Total, ...]
    all_runs: tuple[Total, ...]
    imports: Mapping[str, str]
    keys: tuple[KeyForecast, ...] = ()
    lacking: Mapping[str, int] = {}


def forecast(job: Job, secrets: Path | None = None) -> Forecast:
    """Validate a job against its tables and estimate its cost.

    Args:
        job: The job.
        secrets: Folder of the parties' secrets and of their ledger of all runs; `None` leaves earlier runs out.

    Raises:
        CutlayerError: An error that would stop the run before its first step.
    """
    check_job(job)
    tables = open_tables(job, {})
    check_ids(tables)
    # With PyTorch, once nothing is wrong so far, and without SciPy, which no step uses.
    with run_threads(job.train.threads, job.train.batch_size, scipy=False) as threads:
        return _forecast(job, tables, threads, secrets)


def with_chosen_devices(job: Job, tables: Mapping[str, Any]) -> Job:
    """The job with the device that `auto` is for it, by the forecast; the job itself where nothing is to be chosen.

    Args:
        job: A job that was checked.
        tables: Tables in memory, by party.
    """
    if all(party.device != "auto" for party in job.parties.values()) or not torch.cuda.is_available():
        return job
    from cutlayer.parties.compute.device import chosen_device

    tables = open_tables(job, tables)
    operations = _forecast(job, tables, torch.get_num_threads(), None).step_operations
    for name, party in job.parties.items():
        if party.device == "auto":
            chosen, _ = chosen_device("auto", f"parties.{name}.device", operations)
            job = with_device(job, str(chosen), name)
    return job


def _forecast(job: Job, tables: Mapping[str, PartyTable], threads: int, secrets: Path | None) -> Forecast:
    from cutlayer.parties.compute.device import chosen_device

    profiles = _profiles(job, tables)
    read_bytes = sum(table.bytes for table in tables.values())  # before `prepare` lets the rows of files go
    ids, matches = matched_ids(job.active, tables)
    positions, held, common = positions_of_run(job, ids, tables)
    all_runs = tuple(
        total
        for name, table in (tables.items() if secrets is not None else ())
        for total in forecast_all_runs(job, name, secrets, table, positions[name])  # type: ignore[arg-type]
    )
    split = _split(job, tables[job.active], positions[job.active])
    owner, trained = tables[job.active], positions[job.active][split.train]
    schedule = schedule_of(job, split.train, lambda: owner.digests[trained], owner.id_table.stated_rows)
    parts = {name: held.split(name, split, job.train) for name in job.parties}
    prepared, copies, model, seconds = _tried(job, tables, positions, split, parts, schedule, held)
    columns = dict.fromkeys(job.parties, 0) if job.fits_top else _layer_columns(job, model)
    outputs, products = (0, 0) if job.fits_top else _layer_outputs(model)
    operations = 6.0 * products * schedule.batch_size  # two for each product, and twice as many backwards
    held_out = len(split.validation) or len(split.test)
    counts = (len(split.train), held_out, len(positions[job.active]))
    parties = tuple(
        _party_forecast(job, name, tables, prepared, model, parts, len(positions[name])) for name in job.parties
    )
    fitted = _fitted_numbers(model, len(split.train)) if job.fits_top else 0
    graded = [_graded_numbers(job, party, parts[party.name]) for party in parties]
    ledger = ledger_of(job)
    rows = {party.name: party.rows for party in parties}
    trained_rows = {name: held.count_trained(name, split, part) for name, part in parts.items()}
    classes = [n for each in profiles for n in each.classes.values()]
    drawn, few = drawn_labels_worth(job, trained_rows, classes, profiles)
    tested = len(split.test) or held_out
    cautions = job_cautions(job, rows, counts[2], counts[0], tested, profiles, ledger, (drawn, few))
    return Forecast(
        rows=len(positions[job.active]),
        common=common,
        train=len(split.train),
        validation=len(split.validation),
        test=len(split.test),
        epochs=job.train.max_epochs,
        warmup_epochs=job.train.warmup_epochs,
        steps_per_epoch=schedule.steps_per_epoch,
        threads=threads,
        devices={
            name: chosen_device(party.device, f"parties.{name}.device", operations)[1]
            for name, party in job.parties.items()
        },
        precision=job.train.precision,
        parties=parties,
        memory_bytes=_peak_memory(model, schedule.batch_size * outputs, parties, read_bytes, fitted, max(graded)),
        transcript_bytes=_transcript_bytes(job, model, columns, schedule),
        step_operations=operations,
        seconds_per_epoch=seconds * schedule.steps_per_epoch + GRADE_SECONDS_PER_NUMBER * sum(graded),
        fits_top=job.fits_top,
        guarantees=tuple(f"{entry.protection}: {entry.statement}" for entry in ledger.entries),
        readable={name: readable_columns(job, name) for name in job.passives},
        notes=(*leak_notes(job), *[f"label_dp: {drawn}"] * bool(drawn and not few)),
        warnings=(*copies, *_unseen(tables), *cautions, *shared_row_cautions(job, held, split)),
        columns=profiles,
        totals=ledger.totals,
        all_runs=all_runs,
        imports=imports_of(job),
        keys=key_forecasts(job, matches),
        lacking=lacking_rows(job, ids, common, held),
    )


def _profiles(job: Job, tables: Mapping[str, PartyTable]) -> tuple[ColumnProfile, ...]:
    return tuple(
        profile
        for name, table in tables.items()
        for profile in table.profiles(
            name, note_rare=not suits_rare_categories(job.bottom_of(name)), positive=job.parties[name].positive
        )
    )


def _unseen(tables: Mapping[str, PartyTable]) -> Iterator[str]:
    """A sentence on each column with values that no training row has."""
    notes = ((name, note) for name, table in tables.items() for note in table.notes or ())
    yield from (f"{name}.{note.column}: {note.text}" for name, note in notes if note.kind == "unseen")


def _tried(
    job: Job,
    tables: Mapping[str, PartyTable],
    positions: Mapping[str, Positions],
    split: Split,
    parts: Mapping[str, Split],
    schedule: Schedule,
    held: HeldRows,
) -> tuple[Mapping[str, Prepared], tuple[str, ...], JointModel, float]:
    """Prepare all columns and time a step: these, what gives the labels alone, the models, and seconds of a step."""
    with tempfile.TemporaryDirectory() as scratch:
        prepared = {
            name: table.prepare(positions[name], parts[name].train, Path(scratch) / name)
            for name, table in tables.items()
        }
        if (known := prepared[job.active]).labels is not None:
            train = split.part("train")
            weights = None if known.weights is None else known.weights[train]
            tables[job.active].check_training_labels(known.labels.values[train], weights)
        copies = _label_copies(prepared, held, job.active)
        _check_fits(job, prepared, parts)
        return prepared, copies, *_timing(job, prepared, schedule, held)


def _label_copies(prepared: Mapping[str, Prepared], held: HeldRows, active: str) -> tuple[str, ...]:
    """A sentence on each column that gives the labels alone."""
    from cutlayer.audit.label_copies import label_copies

    labels = prepared[active].labels
    stores = {name: data.store for name, data in prepared.items() if data.store is not None}
    if labels is None:
        return ()
    found = label_copies(held.numbered(stores), held, labels.single, len(labels.classes))
    return tuple(f"{copy.party}.{copy.column}: {copy}; exclude it" for copy in found)


def _split(job: Job, table: PartyTable, positions: Positions) -> Split:
    """A split of the sizes of the run's; a stratified one has other rows there, which are drawn by a secret."""
    from cutlayer.parties.agreement.split import computed_split, draw_split

    if job.train.split.is_sent:
        return draw_split(job, table, positions, bytes(32))
    split = computed_split(job, gathered_rows(table.digests, positions))
    check_no_empty_part(split, job.train.split)
    return split


def _check_fits(job: Job, prepared: Mapping[str, Prepared], parts: Mapping[str, Split]) -> None:
    """Refuse columns that a party's bottom model cannot be fitted to."""
    from cutlayer.models.bottom_fits import TrainingColumns, check_columns

    for name, data in prepared.items():
        if data.store is not None:
            inputs, rows = data.store.columns.inputs, parts[name].part("train")
            epsilon = epsilon_of(chain_of(job, name).protections)
            columns = TrainingColumns(inputs, rows, data.store.gather, epsilon=epsilon)
            check_columns(job.parties[name].fit, columns, f"parties.{name}.fit")


def _timing(job: Job, prepared: Mapping[str, Prepared], schedule: Schedule, held: HeldRows) -> tuple[JointModel, float]:
    """The joint model, and seconds per training step."""
    from cutlayer.models.precision import PreciseModel
    from cutlayer.training.joint import JointModel, train_module

    active = prepared[job.active]
    if active.labels is None:
        raise DataError(f"{job.active} is the active party and needs a label column")
    task = Task.fitted(job.task, active.labels.classes, active.labels.values, job.target)
    task.with_positive(job.parties[job.active].positive, job.active)  # which raises where there is no such label
    empty = [name for name in job.passives if prepared[name].store is None]
    if empty:
        raise DataError(f"{', '.join(empty)}: a passive party needs at least one feature column")
    stores = {name: data.store for name, data in prepared.items() if data.store is not None}
    if job.draws_batches:
        stores = held.numbered(stores)
    labels = active.labels.values
    # Nothing is sent under these keys: the model is timed and thrown away.
    model = JointModel(job, stores, task, dict.fromkeys(job.parties, bytes(32)))
    for module in model.modules():
        if isinstance(module, PreciseModel):
            module.precision = "float32"  # a CPU without bfloat16 takes minutes for a step of convolutions in it
    with torch.random.fork_rng(devices=[]):  # the check draws a few rows
        for (name, store), bottom in zip(stores.items(), model.bottoms, strict=True):
            chain_of(job, name).check_bottom(bottom, store.columns.inputs)  # type: ignore[arg-type]
            # Trained by no step: a wide bottom model would take most of the time.
            bottom.requires_grad_(name == job.active or Phase.RELEASE not in job.phases_of(name))
    if job.fits_top:  # there are no steps to time
        numbers = _fitted_numbers(model, schedule.steps_per_epoch * schedule.batch_size)
        return model, (FIT_SECONDS + numbers * FIT_SECONDS_PER_NUMBER) / schedule.steps_per_epoch

    def seconds_of(batches: Callable[[int], Iterable[Tensor]]) -> float:
        """Mean time of some steps; the first, which warms up, is not timed unless it is the only one."""
        starts: list[float] = []

        def loss(rows: Tensor, _epoch: int, _step: int) -> Tensor:
            starts.append(time.perf_counter())
            return model.top.objective(model.embed(rows), labels[rows], TrainingLoss(task))

        train_module(model, job.train.optimizer, batches, 1, loss)
        return (time.perf_counter() - starts[len(starts) > 1]) / max(len(starts) - 1, 1)

    rows = next(schedule.epoch(0))
    few = rows[:SHORT_STEP_ROWS]
    seconds = seconds_of(lambda _: [few, few]) * len(rows) / len(few)
    if seconds < LONG_STEP_SECONDS:  # then what does not grow with the rows matters, and whole steps are soon taken
        seconds = seconds_of(lambda epoch: islice(schedule.epoch(epoch), TIMED_STEPS + 1))
    return model, seconds


def _fitted_numbers(model: JointModel, rows: int) -> int:
    """Size of what a top model is fitted to at once, in numbers."""
    from cutlayer.models.top_estimators.sample import MAX_CELLS  # with PyTorch

    return min(rows * sum(model.widths.values()), MAX_CELLS)


def _graded_numbers(job: Job, party: PartyForecast, split: Split) -> int:
    """Size of what a partner's model of drawn labels is fitted to, in numbers; 0 of another party."""
    from cutlayer.models.bottom_fits.grade import MAX_CELLS

    if party.role == "active" or not grades_rows(job, party.name):
        return 0
    return min(len(split.train) * (party.categorical + party.numeric), MAX_CELLS)


def _party_forecast(
    job: Job,
    name: str,
    tables: Mapping[str, PartyTable],
    prepared: Mapping[str, Prepared],
    model: JointModel,
    parts: Mapping[str, Split],
    common: int,
) -> PartyForecast:
    role = job.parties[name].role
    train = len(parts[name].train)
    held_out = len(parts[name].validation) or len(parts[name].test)
    widths = model.widths
    once = role == "passive" and Phase.RELEASE in job.phases_of(name)
    row = {
        party: 1 if party != job.active and grades_rows(job, party) else row_bytes(job.channel.compress, width)
        for party, width in widths.items()
    }
    upwards = 0 if once else (train + held_out) * row.get(name, 0)
    sent = {party: len(parts[party].train) * row[party] for party in job.passives}
    downwards = sum(sent[party] for party in job.passives if Phase.RELEASE not in job.phases_of(party))
    warmup = sum(sent.values())
    store = prepared[name].store
    bottom = dict(zip(model.widths, model.bottoms, strict=True)).get(name)
    top = model.top.parameters() if role == "active" else ()
    return PartyForecast(
        name=name,
        role=role,
        rows=tables[name].rows,
        categorical=len(store.columns.cardinalities) if store else 0,
        numeric=store.columns.inputs.numbers if store else 0,
        bottom=str(resolved_section(job.bottom_of(name), store.columns.inputs)["kind"]) if store else None,
        width=widths.get(name),
        parameters=sum(parameter.numel() for parameter in (*(bottom.parameters() if bottom else ()), *top)),
        bytes_per_epoch=upwards if role == "passive" else downwards,
        bytes_warmup=upwards if role == "passive" else warmup,
        bytes_once=common * row[name] if once else 0,
        store_bytes=store.bytes if store else 0,
        left_out=tables[name].left_out,
        repeated_keys=tables[name].repeated_keys,
    )


def _layer_outputs(model: JointModel) -> tuple[int, int]:
    """Outputs of the linear maps, convolutions and normalisations for one row, and products that the maps sum up."""
    outputs, products = list[int](), list[int]()

    def count(layer: nn.Module, _inputs: object, output: Tensor) -> None:
        outputs.append(output.numel())
        weight = layer.weight
        if isinstance(weight, Tensor) and weight.dim() > 1:
            products.append(output.numel() * weight[0].numel())

    kinds = (nn.Linear, nn.Conv2d, nn.BatchNorm2d, nn.GroupNorm)
    handles = [layer.register_forward_hook(count) for layer in model.modules() if isinstance(layer, kinds)]
    model.logits(torch.zeros(1, dtype=torch.int64))
    for handle in handles:
        handle.remove()
    return sum(outputs), sum(products)


def _peak_memory(
    model: JointModel, outputs: int, parties: Sequence[PartyForecast], read_bytes: int, fitted: int, graded: int
) -> int:
    """Peak memory of a run with all parties in one process.

    All tables are in memory with the digests of their ids while the ids are matched, and then while the first party's
    columns are encoded. What a phase needed is then given back: the largest of matching, encoding and fitting counts.
    A fit has the encoded columns, and both the partner's and the label owner's copy of each release. Training by steps
    adds the weights with the optimiser's state, and one batch's activations forwards and backwards.

    Args:
        model: The joint model.
        outputs: Number of outputs of all layers for the rows of a step.
        parties: Cost of each party.
        read_bytes: Size of all tables as they were read, with the digests.
        fitted: Size of what is fitted to at once, in numbers.
        graded: The same of the largest fit of a partner that grades rows.

    Returns:
        Bytes. Measured peaks of runs of 100 thousand to 3 million rows were within 30 % of it; of a process of one
        party, less.
    """
    weights = sum(parameter.nbytes for parameter in model.parameters())
    matching = ALIGNMENT_BYTES * sum(party.rows for party in parties)
    stores = sum(party.store_bytes for party in parties)
    released = 2 * sum(party.bytes_once for party in parties)
    rows = max(read_bytes + max(matching, stores), stores + released + FIT_BYTES_PER_NUMBER * fitted)
    if graded:
        rows = max(rows, GRADE_BYTES + stores + GRADE_BYTES_PER_NUMBER * graded)
    return LIBRARIES_BYTES + ADAM_COPIES * weights + 2 * 4 * outputs + rows


def _layer_columns(job: Job, model: JointModel) -> dict[str, int]:
    """Total number of columns of the layer outputs that an audit records, by party."""
    from cutlayer.models import collect_layer_outputs

    names = list(model.widths)
    columns = dict.fromkeys(job.parties, 0)
    with collect_layer_outputs(model, 1) as outputs:
        model.logits(torch.zeros(1, dtype=torch.int64))
    for layer, output in outputs.items():
        part, _, rest = layer.partition(".")
        columns[names[int(rest.partition(".")[0])] if part == "bottoms" else job.active] += output.shape[1]
    return columns


def _transcript_bytes(job: Job, model: JointModel, columns: Mapping[str, int], schedule: Schedule) -> int:
    """Total size in bytes of the transcripts of all parties."""
    from cutlayer.channel.transcript import LAYER_ROWS
    from cutlayer.parties.session.local import sampling_of

    total = 0
    for name, party in job.parties.items():
        if party.audit.every == "never":
            continue
        links = job.passives if party.role == "active" else (name,)
        row_bytes = 8 + 8 * sum(model.widths[link] for link in links)
        limit = party.audit.max_megabytes * 2**20
        plan = sampling_of(job, name, party.audit, schedule.steps_per_epoch, schedule.batch_size)
        plan = replace(plan, limit=limit)  # whole steps and followed rows together
        nbytes = plan.steps * schedule.batch_size * row_bytes
        nbytes += 4 * LAYER_ROWS * columns[name] if party.audit.layers else 0
        total += sum(plan.writes(epoch, nbytes) for epoch in range(job.train.max_epochs)) * nbytes
    return total
