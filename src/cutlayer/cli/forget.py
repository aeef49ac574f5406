"""`cutlayer forget`: rows, or a party, as if they had never been there, and the receipts of all parties."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cutlayer.cli.app import print_result
from cutlayer.cli.exchange import EXIT_WAITING
from cutlayer.cli.organisation import Organisation, load_party
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.channel.receipts import Receipt
    from cutlayer.config import Job
    from cutlayer.data.party_data import PartyTable
    from cutlayer.jobs.forget import JobDeletion


@verb(consent=("host", "model", "path"))
def forget(
    job: Path,
    *,
    rows: Path | None = None,
    party: str | None = None,
    name: str | None = None,
    local: Path | None = None,
    accept: list[Path] | None = None,
    folder: Path | None = None,
    run: Path | None = None,
    unknown: bool = False,
    key: Path | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Delete all that was made of some rows, or with a party; train again without them, and write a receipt.

    Args:
        rows: A table with the id column alone: the rows to forget, from now on. Of all parties of the job here, unless
            --party names one.
        party: A party that is forgotten with all of its rows; with --rows the one that forgets them.
        name: The party that this process is, between organisations: each deletes what it has, and all train again.
        accept: Between organisations: the receipt of another party; may be repeated. The first is its request.
        folder: Between organisations: the folder of the files between the parties, as in cutlayer exchange.
        unknown: Forget the rows also where no table, ledger or round here has one of them.
        run: The run folder, or the path of its versions; default: as in cutlayer run, and in cutlayer party.

    Example: cutlayer forget job.yaml --rows withdrawn.csv
    """
    if (name is None) != (local is None):
        raise ConfigError.expected("--as and --local together", "one of them", "give both, or none")
    if bool(accept) == (rows is not None or party is not None):
        raise ConfigError.expected("--rows, --party or both, or --accept alone", "another combination")
    if name is not None and local is not None:
        setup = load_party(job, name, local)
        raise typer.Exit(_forget_at_one(setup, rows, party, accept or [], folder, run, unknown, as_json=json))
    if accept or folder is not None:
        raise ConfigError.expected("--accept and --folder between organisations", "no --as", "leave it out")
    _forget_together(job, rows, party, run, key, unknown, quiet=quiet, as_json=json)


def _forget_together(
    path: Path,
    rows: Path | None,
    party: str | None,
    run: Path | None,
    key: Path | None,
    unknown: bool,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Forget with all parties in this process, and train again."""
    from cutlayer.accounting.run_store import RECEIPTS_FOLDER
    from cutlayer.channel.receipts import Receipt
    from cutlayer.cli.report import write_report
    from cutlayer.cli.run import keys_for, train
    from cutlayer.config.load import load_whole_job
    from cutlayer.jobs.forget import JobDeletion
    from cutlayer.jobs.options import Options

    job, base, keys = load_whole_job(path), run or path.parent / "runs" / path.stem, keys_for(path.parent, key)
    deleting = JobDeletion(job, tuple(job.parties), base, None, keys)
    mark = deleting.forget(*_scope(job, tuple(job.parties), rows, party), may_be_unknown=unknown)
    left = job if rows is not None or party is None else _job_without(path, party)
    if left is not None:
        train(left, base, Options(keys, resume=(base / "job.yaml").exists()), quiet=quiet or as_json)
    receipt = Receipt.of(deleting.statement(job.active, mark), None)
    written = receipt.add_to(keys.folder / RECEIPTS_FOLDER)
    mark.end()
    if left is not None:
        write_report(base)
    trained = f"trained again without them: {base}" if left is not None else "no party is left to train with"
    _show([receipt], deleting, [written], [], trained, as_json=as_json)


def _forget_at_one(
    setup: Organisation,
    rows: Path | None,
    party: str | None,
    accept: list[Path],
    folder: Path | None,
    run: Path | None,
    unknown: bool,
    *,
    as_json: bool,
) -> int:
    """Forget at one organisation; returns the exit code."""
    from cutlayer.accounting.run_store import RECEIPTS_FOLDER
    from cutlayer.channel.receipts import receipts_in
    from cutlayer.cli.run import keys_for
    from cutlayer.jobs.forget import JobDeletion
    from cutlayer.storage.durable import make_folder, write_whole

    name, keys, base = setup.name, keys_for(setup.folder, None), run or setup.base
    deleting = JobDeletion(setup.job, (name,), base, folder, keys)
    store = keys.secret_of(name, setup.private).parent / RECEIPTS_FOLDER
    abouts = {_read_receipt(setup, path).add_to(store).parent.name for path in accept}
    own: list[Receipt] = []
    if not accept:
        own = [_sign_receipt(setup, deleting, store, *_scope(setup.job, (name,), rows, party), unknown=unknown)]
        abouts = {own[0].approval.about}
    for about in sorted(abouts):
        known = receipts_in(store, about)[about]
        request = next((each.approval for each in known.values() if not each.approval.request), None)
        if request is None:
            raise ConfigError.expected("the request before the receipts that answer it", "none", "accept it first")
        if name not in known:
            own.append(_sign_receipt(setup, deleting, store, request.what, {}, request.about))
    written = []
    for receipt in own:
        written.append(setup.folder / RECEIPTS_FOLDER / f"{setup.base.name}-{receipt.approval.about[:8]}.json")
        make_folder(written[-1].parent)
        write_whole(written[-1], receipt.model_dump_json(indent=1) + "\n")
    receipts = [receipts_in(store, about)[about] for about in sorted(abouts)]
    missing = sorted({party for known in receipts for party in setup.job.parties if party not in known})
    shown = [receipt for known in receipts for receipt in known.values()]
    _show(shown, deleting, written, missing, as_json=as_json, following=_next(base))
    return EXIT_WAITING if missing else 0


def _scope(job: Job, names: tuple[str, ...], rows: Path | None, party: str | None) -> tuple[str, dict[str, PartyTable]]:
    """What is to be forgotten, in words, and the ids of the rows by the party that forgets them.

    Raises:
        ConfigError: No such party, one that forgets rows elsewhere, or rows that nothing identifies.
        DataError: The table of the rows cannot be read.
    """
    from cutlayer.cli.predict import table_like
    from cutlayer.config import FeaturesConfig
    from cutlayer.data.party_data import PartyTable
    from cutlayer.jobs.forget import ALL_ROWS_OF, check_forgets

    if party is not None and party not in (job.parties if rows is None else names):
        wanted = ", ".join(job.parties if rows is None else names)
        raise ConfigError.expected(f"--party of {wanted}", party, "each party forgets rows of its own")
    if rows is None:
        return ALL_ROWS_OF.format(party), {}
    forgotten = {}
    for name in names if party is None else (party,):
        check_forgets(job, name)
        ids = job.parties[name].id
        once = ids and ids.model_copy(update={"duplicates": "first", "by": None, "pad_to": None})
        forgotten[name] = PartyTable(name, table_like(None, rows), once, features=FeaturesConfig(include="none"))
    return f"rows of {', '.join(forgotten)}", forgotten


def _job_without(path: Path, party: str) -> Job | None:
    """The job without a party; `None` where nobody is left to train with.

    Raises:
        ConfigError: The job names the party elsewhere, too.
    """
    from cutlayer.config.load import job_from_values, read_yaml

    raw = read_yaml(path)
    role = raw["parties"].pop(party)["role"]
    bottom = raw.get("model", {}).get("bottom")
    if isinstance(bottom, dict):
        bottom.pop(party, None)
    return None if role == "active" or len(raw["parties"]) < 2 else job_from_values(raw, path.parent)


def _read_receipt(setup: Organisation, path: Path) -> Receipt:
    """The receipt of another party.

    Raises:
        NotApproved: It is none, or not signed by another party of the job.
    """
    from cutlayer.channel.receipts import Receipt
    from cutlayer.errors import NotApproved

    receipt = Receipt.read(path)
    if setup.links.security is None or receipt.approval.party == setup.name:
        raise NotApproved.expected(f"{path}: a signed receipt of a partner", f"one of {receipt.approval.party!a}"[:120])
    receipt.check(setup.job.digest(), setup.job.identities, setup.links.security, str(path))
    return receipt


def _sign_receipt(
    setup: Organisation,
    deleting: JobDeletion,
    store: Path,
    what: str,
    forgotten: dict[str, PartyTable],
    request: str = "",
    *,
    unknown: bool = False,
) -> Receipt:
    """Delete, write that on the trail, and sign it; a start that was killed has the same receipt."""
    from cutlayer.channel.receipts import Receipt, receipts_in
    from cutlayer.jobs.links import notes_trail

    name, links = setup.name, setup.links
    mark = deleting.forget(what, forgotten, asked=bool(request), may_be_unknown=unknown)
    known = (each[name] for each in receipts_in(store).values() if name in each)
    asked = mark.rows, request
    receipt = next((each for each in known if (each.approval.rows, each.approval.request) == asked), None)
    if receipt is None:
        if links.trail is not None:
            trail = notes_trail(setup.job, name, links.trail, links.security)
            trail.note("forgetting", name, "forgotten", 0, files=list(mark.deleted or ()))
            trail.close()
        receipt = Receipt.of(deleting.statement(name, mark, request), links.security)
        receipt.add_to(store)
    mark.end()
    return receipt


def _next(base: Path) -> str:
    """What is to be done after it: a training, whose number by courier is one that no round has had."""
    from cutlayer.training.latest import begun_versions

    versions = begun_versions(base)
    new = 1 + max((int(version) for version in versions if version.isdecimal()), default=1)
    how = f"cutlayer exchange --version {new}" if versions else "cutlayer party"
    return f"next: train again, at all parties: {how}"


def _show(
    receipts: list[Receipt],
    deleting: JobDeletion,
    written: list[Path],
    missing: list[str],
    *more: str,
    as_json: bool,
    following: str = "",
) -> None:
    from cutlayer.channel.receipts import NOT_DELETED

    deletions = [receipt.approval for receipt in receipts]
    document: dict[str, Any] = {
        "state": "waiting" if missing else "done",
        "receipts": [each.model_dump(mode="json") for each in deletions],
        "left_out": deleting.left_out,
        "unknown": deleting.unknown,
        "not_deleted": deleting.not_deleted,
        "written": [str(path) for path in written],
        "missing": missing,
    }
    lines = [each.summary for each in deletions]
    lines += [f"{rows:,} rows of {name} are left out from now on" for name, rows in deleting.left_out.items()]
    if deleting.left_out and not any(deleting.left_out.values()):
        lines.append("none of these ids is in a table here now")
    if unknown := deleting.unknown:
        lines.append(f"{len(unknown):,} of the ids were never here, as far as is known: {', '.join(unknown[:5])}")
    lines += [f"not deleted: {other}" for other in deleting.not_deleted]
    lines += [f"cannot be undone: {remains}" for remains in NOT_DELETED]
    bring = "" if more else ", for the other parties, which read it with --accept"
    lines += [f"receipt: {path}{bring}" for path in written]
    lines += [f"missing: the receipt of {party}, to be read with --accept" for party in missing]
    print_result(as_json, document, *lines, *more, *filter(None, [following]))
