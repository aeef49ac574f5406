"""Controller that NVFlare starts at its server: the order of a job, its end with a reason, and its report."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from cutlayer_nvflare.export import CHECK, PAYLOAD, START, TRAIN

REPORT = "cutlayer.json"
"""The final report, in the server's folder of the job, which `nvflare job download` returns."""
_CHECK_SECONDS = 60
"""Seconds for a check."""
_START_SECONDS = 180
"""Seconds for the active party to read its table and to listen."""
_FURTHER_REPORT_SECONDS = 5.0
"""Seconds for further sites to report after one failed: the first that notices is not always the first to say why."""
_POLL_SECONDS = 0.2
_MAX_ERROR = 600
"""Characters of a site's error that are passed on."""
_MAX_FINGERPRINT = 100
"""Characters of a fingerprint that are passed on; it has 39."""


class CutlayerController(Controller):  # type: ignore[misc]
    """Has the sites check the job, starts the active party, then the passive ones, and waits for all.

    Args:
        active: Site of the active party.
        passives: Sites of the passive parties.
        may_leave: Those whose loss does not end the job.
    """

    def __init__(self, active: str, passives: Sequence[str], may_leave: Sequence[str] = ()) -> None:
        super().__init__()
        self._active = active
        self._passives = list(passives)
        self._may_leave = set(may_leave)
        self._report: dict[str, Any] = {"completed": False, "reason": "it did not end by itself", "sites": {}}

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is prepared."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Write the final report."""
        folder = Path(fl_ctx.get_workspace().get_run_dir(fl_ctx.get_job_id()))
        (folder / REPORT).write_text(json.dumps(self._report, indent=1) + "\n")

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the job; a failure ends it with a reason."""
        reason = self._flow(abort_signal, fl_ctx)
        if abort_signal.triggered:
            reason = "aborted"
        self._report.update(completed=not reason, reason=reason)
        self.log_info(fl_ctx, f"cutlayer: {reason or 'all parties have ended'}")
        if reason and not abort_signal.triggered:
            self.system_panic(f"cutlayer: {reason}", fl_ctx)

    def process_result_of_unknown_task(
        self, client: Any, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Ignore what comes late."""

    def _flow(self, abort_signal: Signal, fl_ctx: FLContext) -> str:
        everyone = [self._active, *self._passives]
        checked = self._ask(CHECK, everyone, {}, _CHECK_SECONDS, abort_signal, fl_ctx)
        if reason := failure_reason(checked, everyone):
            return reason
        self._report["sites"] = {site: dict(checked[site]) for site in everyone}
        started = self._ask(START, [self._active], {}, _START_SECONDS, abort_signal, fl_ctx)
        if reason := failure_reason(started, [self._active]):
            return reason
        # A site may answer anything; a passive one compares this with the certificate that it is shown.
        request = {"fingerprint": str(checked[self._active].get("fingerprint", ""))[:_MAX_FINGERPRINT]}
        ended = self._ask(TRAIN, everyone, request, 0, abort_signal, fl_ctx)
        for site, answer in ended.items():
            self._report["sites"][site].update(answer)
        if ended.get(self._active, {}).get("error") == "":
            return failure_reason(ended, [site for site in everyone if site not in self._may_leave])
        return failure_reason(ended, everyone)

    def _ask(
        self,
        name: str,
        sites: Sequence[str],
        request: Mapping[str, Any],
        timeout: int,
        abort_signal: Signal,
        fl_ctx: FLContext,
    ) -> dict[str, dict[str, Any]]:
        """Have sites do a task; returns soon after one of them failed without which the job cannot go on."""
        answers: dict[str, dict[str, Any]] = {}
        data = Shareable()
        data[PAYLOAD] = json.dumps(request)
        task = Task(name=name, data=data, timeout=timeout, result_received_cb=partial(self._answered, answers))
        self.broadcast(task=task, fl_ctx=fl_ctx, targets=list(sites), min_responses=len(sites))
        deadline = None
        while task.completion_status is None and len(answers) < len(sites) and not abort_signal.triggered:
            time.sleep(_POLL_SECONDS)
            failed = any(answer["error"] for site, answer in answers.items() if site not in self._may_leave)
            if failed and deadline is None:
                deadline = time.monotonic() + _FURTHER_REPORT_SECONDS
            if deadline is not None and time.monotonic() > deadline:
                break
        if task.completion_status is None:
            self.cancel_task(task)
        return answers

    def _answered(self, answers: dict[str, dict[str, Any]], client_task: ClientTask, fl_ctx: FLContext) -> None:
        site, result = client_task.client.name, client_task.result
        code = result.get_return_code()
        answer = {"error": f"NVFlare reports {code}"}
        if code == ReturnCode.OK:
            try:
                answer = {"error": "", **json.loads(result.get(PAYLOAD))}
            except (TypeError, ValueError, RecursionError):
                answer = {"error": "it answered something else"}
        if answer["error"]:  # it reaches logs, and the site may have written anything
            answer["error"] = "".join(filter(str.isprintable, str(answer["error"])))[:_MAX_ERROR] or "it failed"
        answers[site] = answer
        self.log_info(fl_ctx, f"cutlayer: {site}: {answer['error'] or 'good'}")


def failure_reason(answers: Mapping[str, Mapping[str, Any]], needed: Sequence[str]) -> str:
    """Why a task failed; empty if it did not.

    Args:
        answers: What each site answered.
        needed: Sites without which the task failed.

    Returns:
        A sentence for each site: those with an error of their own first, then those that lost another.
    """
    errors = {site: str(answers[site]["error"]) for site in needed if answers.get(site, {}).get("error")}
    silent = [site for site in needed if site not in answers]
    causes = sorted(errors.items(), key=lambda entry: entry[1].startswith("lost "))
    if not causes and not silent:
        return ""
    return "; ".join([*(f"{site}: {error}" for site, error in causes), *(f"{site} did not answer" for site in silent)])
