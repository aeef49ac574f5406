"""Jobs under NVFlare with all its processes on one machine: a server, two sites and their parties.

Run `python -m tools.nvflare_poc [CASE ...]` with `plugins/nvflare` installed. It provisions a proof of concept with
NVFlare's own command on a free port, starts it, and submits a job for each case:

    direct   tensors over our links: the losses of all parties in one process, to the last bit
    hub      the same where only the hub's port is open
    abort    an aborted job: no process of a party is left
    kill     `kill -9` of all processes of the passive site: the job ends, with a reason

The result is a JSON document; the exit code is 1 if anything differed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from cutlayer.training.folder import RunFolder
from tools.ports import free_port

ACTIVE, PASSIVE = "bank", "telco"
CASES = ("direct", "hub", "abort", "kill")
ADMIN = "admin@nvidia.com"
PATIENCE = 240.0
_JOB = """name: {name}
parties:
  bank: {{role: active{address}}}
  telco: {{role: passive}}
model: {{bottom: {{kind: mlp, hidden: [8, 4]}}, top: {{kind: mlp, hidden: [4]}}}}
train: {{epochs: {epochs}, batch_size: {batch}, seed: 3, threads: 1, keep: last}}
"""
_PRIVATE = {
    ACTIVE: "table: {folder}/bank.csv\nid: id\nlabel: label\nlisten: 127.0.0.1:{port}\naudit: {{every: never}}\n",
    PASSIVE: "table: {folder}/telco.csv\nid: id\naudit: {{every: never}}\n",
}


class Federation:
    """A provisioned server and two sites, in a folder.

    Args:
        base: Folder, of which everything below is made.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.environment = {
            **os.environ,
            "HOME": str(base / "home"),
            "NVFLARE_POC_WORKSPACE": str(base / "poc"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part),
            "OMP_NUM_THREADS": "1",
        }
        (base / "home").mkdir()
        self._prepare()
        self.kits = next(base.glob("poc/*/prod_00"))
        for name in ("server", ACTIVE, PASSIVE):
            allow(self.kits / name / "local")

    def start(self) -> Any:
        """Start server and sites; returns a session of the administrator."""
        self._nvflare("poc", "start")
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        return new_secure_session(ADMIN, str(self.kits / ADMIN), timeout=60)

    def stop(self) -> None:
        """Stop them; what does not end is killed."""
        self._nvflare("poc", "stop", check=False)
        for pid in self.processes(""):
            os.kill(pid, signal.SIGKILL)

    def processes(self, what: str, site: str = "") -> list[int]:
        """Processes that have a folder of this federation, a site, and a text in their command lines."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.kits / site) in command and what in command and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        return found

    def _prepare(self) -> None:
        self._nvflare("poc", "prepare", "--clients", ACTIVE, PASSIVE)
        project = self.base / "poc" / "project.yml"
        text = project.read_text().replace("8002", str(free_port()))
        project = self.base / "project.yml"
        project.write_text(text)
        self._nvflare("poc", "prepare", "-i", str(project), "--force")

    def _nvflare(self, *words: str, check: bool = True) -> None:
        subprocess.run(  # noqa: S603
            [sys.executable, "-m", "nvflare.cli", *words],
            env=self.environment,
            cwd=self.base,
            check=check,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
        )


def allow(local: Path) -> None:
    """Let a site build our two classes: two lines in its `resources.json`, as the documentation says."""
    own = local / "resources.json"
    resources = json.loads((own if own.exists() else local / "resources.json.default").read_text())
    resources["class_allow_list"] += [
        "cutlayer_nvflare.controller.CutlayerController",
        "cutlayer_nvflare.executor.CutlayerExecutor",
    ]
    own.write_text(json.dumps(resources, indent=1))


def write_tables(folder: Path, rows: int) -> None:
    """A table for each party, in its own order of rows."""
    draw = np.random.default_rng(0)
    numbers = {name: draw.normal(size=(rows, 3)) for name in (ACTIVE, PASSIVE)}
    labels = np.where(numbers[ACTIVE][:, 0] + numbers[PASSIVE][:, 0] > 0.5, "yes", "no")
    for name, values in numbers.items():
        order = draw.permutation(rows)
        columns: dict[str, Any] = {"id": np.arange(rows)[order]}
        columns |= {f"{name}_{column}": values[order, column] for column in range(3)}
        if name == ACTIVE:
            columns["label"] = labels[order]
        pa.csv.write_csv(pa.table(columns), folder / f"{name}.csv")


def submit(made: Federation, session: Any, name: str, *, route: str, epochs: int, batch: int) -> str:
    """Write the job and the sites' folders, and submit it; returns NVFlare's id."""
    port = free_port() if route == "direct" else 0
    address = f', address: "127.0.0.1:{port}"' if port else ""
    folder = made.base / name
    folder.mkdir()
    (folder / "job.yaml").write_text(_JOB.format(name=name, address=address, epochs=epochs, batch=batch))
    cutlayer("nvflare", str(folder / "job.yaml"), "--out", str(folder / "nvflare"), "--route", route)
    for site, private in _PRIVATE.items():
        own = made.kits / site / "local" / "cutlayer" / name
        own.mkdir(parents=True)
        (own / "party.yaml").write_text(private.format(folder=made.base, port=port))
        write_key(own / "noise.key")
        (own / "job.yaml").write_bytes((folder / "nvflare" / "app" / "config" / "job.yaml").read_bytes())
    return str(session.submit_job(str(folder / "nvflare")))


def together(made: Federation, epochs: int, batch: int) -> list[float]:
    """Losses of the same job with all parties in one process."""
    folder = made.base / "together"
    folder.mkdir()
    text = _JOB.format(name="together", address="", epochs=epochs, batch=batch)
    for site, private in _PRIVATE.items():
        own = private.format(folder=made.base, port=0).replace("listen: 127.0.0.1:0\n", "")
        role = "active" if site == ACTIVE else "passive"
        lines = "".join(f"    {line}\n" for line in [f"role: {role}", *own.splitlines()])
        text = text.replace(f"  {site}: {{role: {role}}}\n", f"  {site}:\n{lines}")
    (folder / "job.yaml").write_text(text)
    write_key(folder / "noise.key")
    cutlayer("run", str(folder / "job.yaml"), "--out", str(folder / "run"), "--key", str(folder / "noise.key"))
    return losses(folder / "run")


def write_key(path: Path) -> None:
    """The same key everywhere: initial weights are drawn under it."""
    path.write_bytes(bytes(range(32)))
    path.chmod(0o600)


def losses(folder: Path) -> list[float]:
    """Loss of each epoch of a run."""
    return [line["loss"] for line in RunFolder(folder).history()]


def cutlayer(*words: str) -> None:
    """The command line."""
    subprocess.run(  # noqa: S603
        [sys.executable, "-m", "cutlayer", *words, "--json"], check=True, stdout=subprocess.DEVNULL
    )


def run_folder(made: Federation, name: str, job: str, site: str = ACTIVE) -> Path:
    """Run folder of a job at a site."""
    return made.kits / site / "local" / "cutlayer" / name / "runs" / job


def finished(session: Any, job: str) -> str:
    """Wait for the end of a job; its status."""
    wait_for(lambda: str(session.get_job_meta(job)["status"]).startswith("FINISHED"), f"the end of {job}")
    return str(session.get_job_meta(job)["status"])


def report(session: Any, job: str) -> dict[str, Any]:
    """The controller's report, from the job's files as NVFlare returns them."""
    found: dict[str, Any] = json.loads(next(Path(session.download_job_result(job)).rglob("cutlayer.json")).read_text())
    return found


def equal(made: Federation, session: Any, route: str, reference: Sequence[float], epochs: int) -> dict[str, Any]:
    """A whole job over a route."""
    began = time.monotonic()
    job = submit(made, session, route, route=route, epochs=epochs, batch=64)
    status = finished(session, job)
    seconds = time.monotonic() - began
    found = report(session, job)
    same = losses(run_folder(made, route, job)) == list(reference)
    taken = found["sites"][PASSIVE].get("route")
    good = same and taken == route and status == "FINISHED:COMPLETED" and found["completed"]
    return {"good": good, "status": status, "seconds": round(seconds, 1), "losses_equal": same, "route": taken}


def stopped(made: Federation, session: Any, name: str, harm: Callable[[str], None]) -> dict[str, Any]:
    """A long job that ends early: how long its parties live on, and what is reported."""
    job = submit(made, session, name, route="direct", epochs=1000, batch=16)
    wait_for(lambda: len(losses(run_folder(made, name, job))) > 1, "the second epoch")
    began = time.monotonic()
    harm(job)
    wait_for(lambda: not made.processes(f"/cutlayer/{name}/"), "the end of the parties")
    parties = time.monotonic() - began
    status = finished(session, job)
    seconds = time.monotonic() - began
    found = report(session, job)
    good = bool(found["reason"]) and not found["completed"] and seconds < 30
    times = {"parties_seconds": round(parties, 1), "seconds": round(seconds, 1)}
    return {"good": good, "status": status, **times, "reason": found["reason"]}


def kill_site(made: Federation, site: str) -> None:
    """`kill -9` of every process of a site: NVFlare's own and its party's."""
    for pid in made.processes("", site):
        os.kill(pid, signal.SIGKILL)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Poll until a condition holds.

    Raises:
        TimeoutError: it does not.
    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.2)


@contextmanager
def federation(base: Path) -> Iterator[tuple[Federation, Any]]:
    """A running federation and a session."""
    made = Federation(base)
    session = None
    try:
        session = made.start()
        yield made, session
    finally:
        if session is not None:
            session.close()
        made.stop()


def run_cases(base: Path, cases: Sequence[str], epochs: int) -> dict[str, Any]:
    """Run cases, one after the other; killing comes last, since the site does not come back."""
    results: dict[str, Any] = {}
    write_tables(base, 600)
    with federation(base) as (made, session):
        reference = together(made, epochs, 64) if {"direct", "hub"} & {*cases} else []
        for case in sorted(cases, key=CASES.index):
            try:
                results[case] = run_case(made, session, case, reference, epochs)
            except Exception as failure:  # the other cases are still worth their time
                results[case] = {"good": False, "error": f"{type(failure).__name__}: {failure}"}
            sys.stderr.write(f"{case}: {results[case]}\n")
    return results


def run_case(made: Federation, session: Any, case: str, reference: Sequence[float], epochs: int) -> dict[str, Any]:
    """One case; what it found, with whether that is `good`."""
    if case in ("direct", "hub"):
        return equal(made, session, case, reference, epochs)
    if case == "abort":
        return stopped(made, session, case, session.abort_job)
    return stopped(made, session, case, lambda _: kill_site(made, PASSIVE))


def main() -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("case", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; all by default")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder to make and leave, to look at")
    options = parser.parse_args()
    if unknown := set(options.case) - {*CASES}:
        parser.error(f"unknown case {', '.join(unknown)}")
    cases = options.case or CASES
    if options.keep:
        options.keep.mkdir()
        results = run_cases(options.keep.resolve(), cases, options.epochs)
    else:
        with tempfile.TemporaryDirectory() as base:
            results = run_cases(Path(base), cases, options.epochs)
    sys.stdout.write(json.dumps(results, indent=1) + "\n")
    return 0 if all(result["good"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
