"""Two machines in network namespaces of Linux: an address, a hosts file and a folder each, linked by one cable."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.parties.processes import Forked, forked, run_in

PROGRAMS = ("ip", "mount", "nsenter", "unshare")


@dataclass(frozen=True)
class Machine:
    """A network and mount namespace, which lasts as long as a process in it.

    Attributes:
        folder: Folder of the organisation; the machine sees those of the others as empty.
        process: Id of that process.
    """

    folder: Path
    process: int

    def start(self, arguments: Sequence[str]) -> Forked:
        """Run the command line on the machine, in its folder."""
        return forked(_enter_and_run, self.process, self.folder, list(arguments))


def why_not() -> str:
    """Why machines cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    cable = ["ip", "link", "add", "cable", "type", "veth", "peer", "name", "other"]
    tried = subprocess.run(["unshare", "--net", "--mount", *cable], capture_output=True, text=True, check=False)
    return f"no network namespace with a cable: {tried.stderr.strip()}" if tried.returncode else ""


@contextmanager
def machines(base: Path, hosts: Sequence[str]) -> Iterator[dict[str, Machine]]:
    """Make two machines that reach each other by the cable and nothing else.

    Args:
        base: Folder of their folders, which exist.
        hosts: Their names, `FOLDER.DOMAIN`: each machine's folder, and its name in the hosts file of both.
    """
    addresses = {host: f"10.77.0.{number}" for number, host in enumerate(hosts, start=1)}
    listed = "".join(f"{address} {host}\n" for host, address in addresses.items())
    (base / "hosts").write_text(f"127.0.0.1 localhost\n{listed}")
    with ExitStack() as stack:
        made = {}
        for host in hosts:
            name = host.partition(".")[0]
            hidden = [base / other.partition(".")[0] for other in hosts if other != host]
            made[name] = Machine(base / name, stack.enter_context(_namespace(base / "hosts", hidden)))
        first, second = (machine.process for machine in made.values())
        _inside(first, f"ip link add cable type veth peer name cable netns {second}")
        for machine, address in zip(made.values(), addresses.values(), strict=True):
            _inside(machine.process, f"ip addr add {address}/24 dev cable && ip link set cable up")
        yield made


@contextmanager
def _namespace(hosts: Path, hidden: Sequence[Path]) -> Iterator[int]:
    """A process in namespaces of its own, which ends with its standard input."""
    hide = "".join(f" && mount -t tmpfs none '{folder}'" for folder in hidden)
    script = f"mount --bind '{hosts}' /etc/hosts{hide} && ip link set lo up && echo ready && exec cat"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", script], text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        try:
            yield process.pid
        finally:
            process.communicate()


def _inside(process: int, script: str) -> None:
    subprocess.run(["nsenter", "--target", str(process), "--net", "sh", "-c", script], check=True)


def _enter_and_run(process: int, folder: Path, arguments: list[str]) -> None:
    system = ctypes.CDLL(None, use_errno=True)  # os.setns is of Python 3.12
    for kind in ("net", "mnt"):
        with Path(f"/proc/{process}/ns/{kind}").open() as namespace:
            if system.setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"setns {kind}")
    run_in(folder, arguments)
