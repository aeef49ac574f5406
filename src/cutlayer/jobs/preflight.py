"""Checks everything that a party's run needs before it trains: files, certificates, table, and the other parties."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cutlayer.accounting.ledger import REFUSAL_ENTRY
from cutlayer.accounting.wording import with_bound
from cutlayer.alignment.held_rows import ALL_HAVE_ALL
from cutlayer.audit.label_copies import label_copies
from cutlayer.channel.address import check_loopback
from cutlayer.channel.security import Security
from cutlayer.channel.tls.names import fingerprint, identity_of
from cutlayer.config import Job
from cutlayer.config.aggregate import UNDATED, undated
from cutlayer.data.classes import class_listing
from cutlayer.data.party_data import PartyTable
from cutlayer.data.profile import ColumnProfile
from cutlayer.data.row_keys import has_key
from cutlayer.errors import CutlayerError
from cutlayer.jobs.cautions import column_cautions, drawn_labels_worth, private_fit_cautions, readable_columns
from cutlayer.jobs.check import check_job
from cutlayer.jobs.links import LinkOptions, address_of, make_client, open_server
from cutlayer.jobs.one_check import PreflightCheck, run_check
from cutlayer.jobs.options import Options
from cutlayer.models import suits_rare_categories
from cutlayer.parties.compute.device import chosen_device
from cutlayer.problem.task import Task
from cutlayer.training.run_ledger import ledger_of
from cutlayer.training.tables import open_table

MAX_COLUMNS = 40
"""Columns that a check of one half lists."""


def run_preflight(job: Job, name: str, options: Options, links: LinkOptions) -> list[PreflightCheck]:
    """Check one party of a job; nothing is trained, released or written.

    The active party listens and waits for the others, which run their preflight or the job itself; a passive party
    connects once to the active one. Rows are neither sent nor compared.

    Args:
        job: Job with this party's private part filled in.
        name: Name of the party.
        options: Where tables are, if not in files.
        links: How to connect to the other parties.
    """
    checks = [
        run_check("job", lambda: _job(job, name)),
        run_check("table", lambda: f"{open_table(job, name, options.tables).rows:,} rows"),
        run_check("certificate", lambda: certificate_of(links.security)),
        run_check("address", lambda: _address(job, links)),
    ]
    return [*checks, *(_passive_parties(job, links) if name == job.active else _active_party(job, name, links))]


def check_own_part(job: Job, name: str) -> list[PreflightCheck]:
    """Check one party's part of a job by itself: no other party is needed, and nothing is written.

    Args:
        job: Job with this party's private part filled in.
        name: Name of the party.
    """
    checks = [run_check("job", lambda: _job(job, name))]
    cautions: list[PreflightCheck] = []
    columns: list[PreflightCheck] = []
    checks += [run_check("table", lambda: _columns(job, name, columns, cautions))]
    if not any(check.problem for check in checks):
        checks += columns[:MAX_COLUMNS] + cautions
        if (more := len(columns) - MAX_COLUMNS) > 0:
            checks.append(PreflightCheck("columns", f"{more:,} more; those that are odd are named above"))
        ledger = ledger_of(job)
        totals = [total for total in ledger.totals if total.party == name]
        checks += [PreflightCheck("guarantee", with_bound(total)) for total in totals]
        mine = [entry for entry in ledger.entries if entry.party == name]
        checks += [PreflightCheck("refusal", entry.statement) for entry in mine if entry.protection == REFUSAL_ENTRY]
        if name in job.passives and any(total.epsilon is not None for total in totals):
            checks.append(PreflightCheck(f"columns of {name}", readable_columns(job, name)))
        if name == job.active and job.parties[name].audit.fail_above.excess is not None:
            why = "excess fails: what a partner's own columns reveal is not known here; label_auc is"
            checks.append(PreflightCheck("audit.fail_above", why, caution=True))
        if all(total.epsilon is None for total in totals):
            checks.append(PreflightCheck("guarantee", f"none: {_exposure(job, name)}", caution=True))
    return checks


def _exposure(job: Job, name: str) -> str:
    """Warning about a party without a formal guarantee: its messages, and who may learn what from them."""
    if name == job.active:
        return f"gradients depend on the labels, and {', '.join(job.passives)} may infer labels from them"
    return readable_columns(job, name)


def _columns(job: Job, name: str, columns: list[PreflightCheck], cautions: list[PreflightCheck]) -> str:
    """Rows of a party's table; adds what each column is taken for to the columns, and what is odd to the cautions."""
    table = open_table(job, name, {})
    for reason, count in table.left_out.items():
        left_out = f"{count:,} rows of the file are left out, {reason}"
        cautions.append(PreflightCheck("rows", left_out, caution=True))
    cautions += [PreflightCheck("aggregate", UNDATED, caution=True)] * (name in undated(job))
    cautions += _keys(table)
    rare_are_odd = not suits_rare_categories(job.bottom_of(name))
    profiles = table.profiles(name, note_rare=rare_are_odd, positive=job.parties[name].positive)
    counts = [count for column in profiles for count in column.classes.values()]
    rows = {of: (table.ids_for(of) if table.partner_ids else table.id_table).rows for of in job.parties}
    drawn, few = drawn_labels_worth(job, rows, counts, profiles)
    cautions += [PreflightCheck("label_dp", f"{drawn}, if all rows train", caution=few)] * bool(drawn)
    for where, _, beyond in (
        caution.partition(": ")
        for caution in (*column_cautions(job, profiles), *private_fit_cautions(job, rows, profiles))
    ):
        cautions.append(PreflightCheck(where, beyond, caution=True))
    for column in profiles:
        if column.role == "label":
            task = Task(job.task, tuple(column.classes))
            task.with_positive(column.positive, name)  # raises where there is no such label
        columns.append(PreflightCheck(f"column {column.name}", _column_summary(column)))
        if column.classes and column.distinct is not None:
            columns.insert(0, PreflightCheck(*class_listing(column.classes, column.distinct, column.positive)))
        cautions += [PreflightCheck(f"column {column.name}", note, caution=True) for note in column.notes]
    everything = np.arange(table.rows)
    prepared = table.prepare(everything, everything)
    store, labels = prepared.store, prepared.labels
    if store is None:
        return f"{table.rows:,} rows, no features"
    for copy in () if labels is None else label_copies({name: store}, ALL_HAVE_ALL, labels.single, len(labels.classes)):
        cautions.append(PreflightCheck(f"column {copy.column}", f"{copy}; exclude it", caution=True))
    categorical = len(store.columns.cardinalities)
    numeric = store.columns.inputs.numbers
    return f"{table.rows:,} rows; {categorical} categorical and {numeric} numeric columns after encoding"


def _keys(table: PartyTable) -> Iterator[PreflightCheck]:
    """How many rows each of several keys identifies."""
    for number, (digests, repeated) in enumerate(zip(table.keys, table.repeated_keys, strict=True), 1):
        shared = f"; {repeated:,} more share it with other rows" if repeated else ""
        yield PreflightCheck(f"key {number}", f"identifies {np.count_nonzero(has_key(digests)):,} rows{shared}")


def _column_summary(column: ColumnProfile) -> str:
    kind = "label" if column.role == "label" else column.kind
    values = "" if column.distinct is None else f", {column.distinct:,} value{'s' * (column.distinct != 1)}"
    return f"{column.type}, taken for a {kind}{values}, {column.missing:,} missing"


def _job(job: Job, name: str) -> str:
    check_job(job, name)
    device = chosen_device(job.parties[name].device, f"parties.{name}.device")[1]
    return f"digest {job.digest()}, to be equal at all parties; trains on {device}, {job.train.precision}"


def certificate_of(security: Security | None) -> str:
    """A party's own certificate in words: its identity, its end and its authorities."""
    if security is None:
        return "none, links without TLS on this machine alone"
    loaded = security.credentials.current()
    certificate = loaded.certificate
    authorities = ", ".join(map(fingerprint, loaded.authorities))
    until = f"valid until {certificate.not_valid_after_utc:%Y-%m-%d}"
    return f"{identity_of(certificate)}, {until}; authority {authorities}"


def _address(job: Job, links: LinkOptions) -> str:
    address = address_of(job)
    return address if links.security is not None else check_loopback(address)


def _active_party(job: Job, name: str, links: LinkOptions) -> Iterator[PreflightCheck]:
    def greeted() -> str:
        with make_client(job, name, links) as link:
            link.greet(links.timeout)
        return f"{job.active} at {address_of(job)} has the same job and version"

    yield run_check(job.active, greeted)


def _passive_parties(job: Job, links: LinkOptions) -> Iterator[PreflightCheck]:
    try:
        with open_server(job, links, greet_only=True) as server:
            links.notify(f"listening at {server.address} for {', '.join(job.passives)}")
            problems = server.wait_for_greetings(links.timeout)
    except CutlayerError as failure:
        yield PreflightCheck("listen", problem=str(failure))
        return
    for peer, problem in problems.items():
        yield PreflightCheck(peer, "" if problem else "connected, with the same job and version", problem)
