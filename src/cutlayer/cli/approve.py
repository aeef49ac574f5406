"""`cutlayer approve`: what a job reveals of this organisation, and its signature of that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutlayer.cli.app import print_result
from cutlayer.cli.organisation import load_party
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError, NotApproved

if TYPE_CHECKING:
    from cutlayer.channel.approvals import Approvals, SignedApproval
    from cutlayer.jobs.approval import ApprovalPage


@verb(consent=("model",))
def approve(
    job: Path,
    *,
    name: str,
    local: Path,
    sign: str | None = None,
    accept: list[Path] | None = None,
    withdraw: bool = False,
    out: Path | None = None,
    kit: Path | None = None,
    json: bool = False,
) -> None:
    """Show what a job reveals of this organisation; sign it, withdraw the signature, or read those of the partners.

    Args:
        sign: Sign the page of this reference, by the key of this party's certificate.
        accept: A partner's approval or withdrawal; may be repeated.
        withdraw: Withdraw this party's approval: nothing more is sent.
        out: The file for the partners; default: approvals/JOB-NAME.json next to the private file.
        kit: NVFlare startup kit (its folder startup) whose certificate to use.

    Example: cutlayer approve job.yaml --as telco --local telco.yaml
    """
    if sum((sign is not None, bool(accept), withdraw)) > 1:
        raise ConfigError.expected("one of --sign, --accept and --withdraw", "several", "one after the other")
    setup = load_party(job, name, local, kit=kit)
    from cutlayer.channel.approvals import is_record
    from cutlayer.consent import allowed
    from cutlayer.jobs import approval
    from cutlayer.jobs.links import note_approvals, trail_folder
    from cutlayer.storage.durable import check_output, make_folder, write_whole

    trail = trail_folder(setup.private, name, local.parent)
    approvals = approval.approvals_of(setup.job, name, trail, setup.links.security, serve=setup.private.serve)
    written = out or local.parent / "approvals" / f"{setup.base.name}.json"
    check_output(written, own=is_record)
    records: list[SignedApproval] = []
    page: ApprovalPage | None = None
    if accept:
        records = [_accepted(approvals, path, name) for path in accept]
    elif withdraw:
        records = [approval.withdraw(approvals)]
    else:
        with allowed(*setup.private.allow_models):
            page = approval.page_of(setup.job, name, serve=setup.private.serve)
        if sign is not None:
            records = [approval.sign_page(approvals, _checked(page, sign))]
    if records and setup.links.security is not None:
        note_approvals(setup.job, name, trail, setup.links.security, [record.approval for record in records])
    signed = bool(records) and not accept
    if signed:
        make_folder(written.parent)
        write_whole(written, records[0].model_dump_json(indent=1) + "\n")
    problem = _problem(approvals)
    if page is not None and not json:
        sys.stdout.write(approval.page_markdown(page) + "\n")
    document: dict[str, Any] = {
        "party": name,
        "required": approval.requires_approval(setup.job, name),
        "page": None if page is None else {**page.model_dump(mode="json"), "reference": page.reference},
        "records": [record.approval.model_dump(mode="json") for record in records],
        "out": str(written) if signed else None,
        "complete": not problem,
        "missing": problem,
    }
    print_result(json, document, *_lines(page, records, written if signed else None, problem))


def _accepted(approvals: Approvals, path: Path, name: str) -> SignedApproval:
    from cutlayer.channel.approvals import SignedApproval

    signed = SignedApproval.read(path)
    if signed.approval.party == name:
        raise ConfigError.expected(f"{path}: the approval of a partner", f"one of {name}", "sign it here with --sign")
    approvals.add(signed, str(path))
    return signed


def _checked(page: ApprovalPage, reference: str) -> ApprovalPage:
    """The page, where its reference is the one that was asked to be signed."""
    if reference != page.reference:
        wanted = f"--sign {page.reference}, the page of now"
        raise ConfigError.expected(wanted, reference[:80], "look at it with cutlayer approve, then sign it")
    return page


def _problem(approvals: Approvals) -> str:
    """Why nothing may be sent yet; empty if all parties have approved."""
    try:
        approvals.check()
    except NotApproved as failure:
        return str(failure)
    return ""


def _lines(page: ApprovalPage | None, records: list[SignedApproval], out: Path | None, problem: str) -> Iterator[str]:
    yield from (record.approval.summary for record in records)
    if page is not None and not records:
        yield f"nothing was signed; to approve this page: --sign {page.reference}"
    if out is not None:
        yield f"{out}: for the other parties, which read it with cutlayer approve --accept"
    yield f"not complete: {problem}" if problem else "all parties have approved"
