"""The page of what a job reveals of one organisation, which it signs before anything is sent."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cutlayer.channel.approvals import Approvals, SignedApproval
from cutlayer.channel.contract import printable_line
from cutlayer.channel.security import Security
from cutlayer.config import FrozenModel, Job, PrivatePart
from cutlayer.config.ids import columns_of
from cutlayer.config.load import load_closed_job
from cutlayer.config.phases import Phase, grades_rows, reads_labels
from cutlayer.config.serve import ServeConfig
from cutlayer.data.encoding import Encoder
from cutlayer.data.feature_columns import feature_names
from cutlayer.data.sources import open_source
from cutlayer.data.table_ids import id_columns
from cutlayer.errors import ConfigError, NotApproved
from cutlayer.jobs.cautions import leak_notes, readable_columns
from cutlayer.models import stated_width
from cutlayer.models.bottom_fits import fit_with_limits, label_epsilon_of
from cutlayer.report.markdown import escape_markdown
from cutlayer.storage.durable import make_folder, write_whole
from cutlayer.storage.json_values import parse_json
from cutlayer.training.folder import RunFolder
from cutlayer.training.run_ledger import chain_of, planned_entries

_PAGE = "page.json"
_NOT_REVEALING = {"table", "secret", "memory", "device", "report", "audit", "log", "approvals"}
"""Private keys that change nothing of what leaves the party; of the table its path, since new rows come every month."""
_OF_THE_TRAINING = ("privacy", "fit", "serving", "features")
_OF_SERVING = ("max_ids", "passes")
_REFERENCE_DIGITS = 16
"""Digits of a page's reference."""
_ALIGNMENT = {
    "psi": "a private set intersection: the label owner learns which of its ids each partner has, a partner which of "
    "its rows are common; ids that only one side has stay hidden, their number does not",
    "plain": "the label owner sees a digest of every id of each partner, and so every id that it can guess",
}


class ApprovalPage(FrozenModel):
    """What a job reveals of one organisation; it signs a digest of this page.

    Attributes:
        party: Name of the organisation in the job.
        role: `active`, the label owner, or `passive`.
        name: Name of the job.
        job: Digest of what all parties share of the job.
        identities: Identity of every party, by name.
        receivers: Parties that this one sends to.
        columns: Columns of its table that the job reads, by their use, in alphabetical order.
        alignment: What finding the common rows shows.
        sends: What leaves this organisation, a sentence each.
        readable: What a receiver may learn of it.
        guarantees: Guarantee of each protection, or the reason why there is none.
        notes: Leaks that the settings imply.
        settings: Private settings that what leaves depends on, where they are not the default.
        serve: Limits of a partner's online service; `None` where that is not looked at.
    """

    party: str
    role: str
    name: str
    job: str
    identities: Mapping[str, str]
    receivers: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]
    alignment: str
    sends: tuple[str, ...]
    readable: str
    guarantees: tuple[str, ...]
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    serve: Mapping[str, int | None] | None = None

    @property
    def reference(self) -> str:
        """What its owner names the page by when it signs; it leaves nobody's machine."""
        return self.digest("")[:_REFERENCE_DIGITS]

    def digest(self, salt: str) -> str:
        """SHA-256 of the page, in hexadecimal.

        Args:
            salt: Secret text without which the page cannot be guessed from the digest.
        """
        stated = self.model_dump(mode="json", exclude={"serve"} if self.serve is None else None)
        content = json.dumps([salt, stated], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    def changed_since(self, other: ApprovalPage) -> Iterator[str]:
        """What differs from an earlier page, in words."""
        for key in type(self).model_fields:
            mine, theirs = getattr(self, key), getattr(other, key)
            if key == "columns":
                after, before = ({name for names in each.values() for name in names} for each in (mine, theirs))
                if difference := [*(f"+{name}" for name in sorted(after - before)), *sorted(before - after)]:
                    yield f"columns ({', '.join(difference)[:200]})"
                    continue
            if mine != theirs:
                yield key


def page_of(job: Job, name: str, run: Path | None = None, serve: ServeConfig | None = None) -> ApprovalPage:
    """The page of a party, from the job, its private part, and the names of the columns of its table.

    Args:
        job: Job with the party's private part filled in.
        name: Name of the party.
        run: Run folder of a trained model. What it sends depends on the protections and columns that it was trained
            with, whatever the private part says now of all but limits.
        serve: Online serving, as the private file has it; `None` where nothing is served.

    Raises:
        ConfigError: The party names no table.
        DataError: The names of its columns cannot be read.
    """
    if run is not None:
        trained = load_closed_job(run / "job.yaml").parties[name]
        kept = {key: getattr(trained, key) for key in _OF_THE_TRAINING}
        kept["fit"] = fit_with_limits(trained.fit, job.parties[name].fit)  # as predictions have it
        job = job.with_parties({name: kept})
    party = job.parties[name]
    private = {key: getattr(party, key) for key in PrivatePart.model_fields}
    settings = PrivatePart(**private).model_dump(mode="json", exclude=_NOT_REVEALING, exclude_defaults=True)
    if party.table is not None:
        table = party.table.model_dump(mode="json", exclude={"path"}, exclude_defaults=True)
        settings |= {"table": table} if table else {}
    active = name == job.active
    return ApprovalPage(
        party=name,
        role=party.role,
        name=job.name,
        job=job.digest(),
        identities=dict(job.identities),
        receivers=job.peers_of(name),
        columns=_columns(job, name, run),
        alignment=f"{job.alignment}, {_ALIGNMENT[job.alignment]}",
        sends=tuple(_label_owner_sends(job) if active else _partner_sends(job, name)),
        readable="see the guarantees" if active else readable_columns(job, name),
        guarantees=tuple(
            f"{entry.protection}, {entry.protects} towards {', '.join(entry.towards)}: {entry.statement}"
            for entry in planned_entries(job, name, chain_of(job, name))
        ),
        notes=leak_notes(job),
        settings=settings,
        serve=None if serve is None or active else {key: getattr(serve, key) for key in _OF_SERVING},
    )


def _columns(job: Job, name: str, run: Path | None) -> Mapping[str, tuple[str, ...]]:
    party = job.parties[name]
    if party.table is None:
        wanted = f"a table of {name} in its private file, whose columns the approval names"
        raise ConfigError.expected(wanted, "none", "name it by table")
    source = open_source(party.table, name)
    split_by = job.train.split.by if party.role == "active" else None
    named = {"label": party.label, "exposure": party.exposure, "event": party.event, "group": party.group}
    named |= {"weight": party.weight, "split": split_by}
    used: dict[str, tuple[str, ...]] = {use: (column,) for use, column in named.items() if column is not None}
    if party.label is not None:
        used["label"] = (party.label, *party.further_labels)
    used["id"] = id_columns(source, party.id, party.label, ("weight", party.weight))
    if run is None:
        reserved = {column for columns in used.values() for column in columns}
        referring = columns_of(party.partner_ids)
        used["feature"] = feature_names(source.names, party.features, source.where, reserved, referring)
    elif (encoder := RunFolder(run).data(name) / "encoder.json").exists():
        used["feature"] = tuple(Encoder.from_json(encoder.read_bytes(), str(encoder)).names)
    used["limit"] = tuple(party.limited_columns.include)
    used |= {f"id for {partner}": ids.columns for partner, ids in party.partner_ids.items()}
    return {use: tuple(sorted(columns)) for use, columns in sorted(used.items()) if columns}


def _partner_sends(job: Job, name: str) -> Iterator[str]:
    """What leaves a partner, each a sentence."""
    width = stated_width(job.bottom_of(name))
    numbers = "numbers" if width is None else f"{width} numbers"
    rows = "each common row" if job.rows == "common" else "each of its rows that the label owner has too"
    if grades_rows(job, name):
        most = job.bottom_of(name).get("grades", 16)
        fitted = "is of its columns"
        if reads_labels(job, name):
            drawn = f"at epsilon {label_epsilon_of(job.bottom_of(name)):g} at most, as it states"
            fitted = f"is fitted to labels that {job.active} draws, {drawn}"
        once = "once in each training; the model of them stays here"
        yield f"one of at most {most} grades of {rows}, {once}, and {fitted}"
    elif Phase.RELEASE in job.phases_of(name):
        yield f"{numbers} of {rows}, once in each training"
    else:
        yield f"{numbers} of {rows}, in each of up to {job.train.max_epochs:,} epochs"
    if job.train.warmup_epochs:
        yield f"in {job.train.warmup_epochs} epochs before that, whether it takes part"
    planned = job.parties[name].serving
    yield f"the same of rows to predict{f', up to {planned:,} times a row' if planned else ''}"


def _label_owner_sends(job: Job) -> Iterator[str]:
    """What leaves the label owner, each a sentence."""
    for name in job.passives:
        if Phase.LABELS in job.phases_of(name):
            yield f"the drawn label of each training row to {name}, once in each training"
        elif job.is_label_free(name):
            yield f"nothing that depends on a label to {name}"
        else:
            yield f"a cut gradient of each training row to {name}, in each of up to {job.train.max_epochs:,} epochs"
    yield "which rows are asked for, in training and for predictions"


def page_markdown(page: ApprovalPage) -> str:
    """The page as Markdown; names of columns are the only texts of others in it, and are set as code."""
    sections: list[tuple[str, Sequence[str]]] = [
        ("Columns that the job reads", [f"{use}: {_listed(names)}" for use, names in page.columns.items()]),
        (f"What leaves {page.party}", page.sends),
        ("What may be read from it", [page.readable]),
        ("Guarantees", page.guarantees),
        ("Leaks that the settings imply", page.notes),
        ("Alignment", [page.alignment]),
        ("Private settings that count", [f"{key}: `{json.dumps(value)}`" for key, value in page.settings.items()]),
        ("Limits of online serving", [f"{key}: {_limit(limit)}" for key, limit in (page.serve or {}).items()]),
        ("Parties", [f"{party}: {identity}" for party, identity in page.identities.items()]),
    ]
    lines = [f"# What the job {escape_markdown(page.name)} reveals of {page.party}", ""]
    lines += [f"To {', '.join(page.receivers)}. Job {page.job}; page {page.reference}."]
    for title, entries in sections:
        lines += ["", f"## {title}", "", *(f"- {entry}" for entry in entries or ["none"])]
    return "\n".join(lines) + "\n"


def _limit(limit: int | None) -> str:
    return "no limit" if limit is None else f"{limit:,}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{printable_line(' '.join(name.replace('`', ' ').split()))}`" for name in names)


def requires_approval(job: Job, name: str) -> bool:
    """Whether the job, or the party, sends nothing without approvals."""
    return "required" in (job.approvals, job.parties[name].approvals)


def approvals_of(
    job: Job,
    name: str,
    trail: Path,
    security: Security | None,
    run: Path | None = None,
    serve: ServeConfig | None = None,
) -> Approvals:
    """The approvals of a job at a party, in a folder next to its secret.

    Args:
        job: Job with the party's private part filled in.
        name: Name of the party.
        trail: Folder of the party's egress trail.
        security: Certificates and identities.
        run: As in `page_of`.
        serve: As in `page_of`.

    Raises:
        NotApproved: There are no certificates: nobody could tell who approved.
    """
    if security is None:
        remedy = "connect with certificates (cutlayer keys), without --plaintext"
        raise NotApproved.expected("certificates, by whose keys approvals are signed", "none", remedy)
    secret = trail.name.rpartition(".trail")[0]
    folder = trail.with_name(f"{secret}.approvals") / job.digest()
    own = lambda digest: _compare_page(folder, page_of(job, name, run, serve), digest)  # noqa: E731
    return Approvals(folder, name, job.digest(), job.identities, security, own)


def sign_page(approvals: Approvals, page: ApprovalPage) -> SignedApproval:
    """Approve a page."""
    salt = secrets.token_hex(32)
    make_folder(approvals.folder)
    content = json.dumps({"salt": salt, "page": page.model_dump(mode="json")}, indent=1)
    # Before the record: without its page an approval does not count.
    write_whole(approvals.folder / _PAGE, content + "\n")
    return approvals.sign("approved", page.digest(salt))


def withdraw(approvals: Approvals) -> SignedApproval:
    """Withdraw the approval of this party: its processes stop before their next message.

    Raises:
        NotApproved: It has not approved the job.
    """
    path = approvals.path(approvals.party)
    if not path.exists():
        raise NotApproved.expected(f"an approval of {approvals.party} to withdraw", "none")
    return approvals.sign("withdrawn", SignedApproval.read(path).approval.page)


def _compare_page(folder: Path, page: ApprovalPage, digest: str) -> None:
    """Raise unless a page is the one that was signed.

    Raises:
        NotApproved: It is another one; the message names what changed.
    """
    try:
        signed = parse_json((folder / _PAGE).read_bytes())
        before, salt = ApprovalPage.model_validate(signed["page"]), str(signed["salt"])
    except (OSError, ValueError, KeyError, TypeError):
        remedy = "sign again with cutlayer approve --sign"
        raise NotApproved.expected(f"the signed page in {folder / _PAGE}", "none", remedy) from None
    if page.serve is None:  # nothing is served
        page = page.model_copy(update={"serve": before.serve})
    if before.digest(salt) != digest:
        raise NotApproved.expected(f"the page that was signed in {folder / _PAGE}", "another one", "sign again")
    if page.digest(salt) != digest:
        changed = ", ".join(page.changed_since(before)) or "its form"
        remedy = "look at the page of now with cutlayer approve, and sign it"
        raise NotApproved.expected(f"the page that {page.party} approved", f"one with other {changed}", remedy)
