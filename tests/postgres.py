"""A PostgreSQL server for the tests that need one."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

BINARIES = Path("/usr/lib/postgresql")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A server of Debian's package on a socket in a folder of its own, without a port."""
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra sql)")
    commands = sorted(BINARIES.glob("*/bin/initdb"))
    if not commands:
        pytest.skip("Debian's package postgresql is not installed")
    binaries = commands[-1].parent
    root = os.geteuid() == 0
    try:
        owner = pwd.getpwnam("postgres" if root else pwd.getpwuid(os.geteuid()).pw_name)
    except KeyError:
        pytest.skip("the server does not run as root, and there is no user postgres")
    folder = Path(tempfile.mkdtemp(prefix="cutlayer-pg-", dir="/tmp"))
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if root else {}

    def run(*command: str | Path) -> None:
        subprocess.run(command, check=True, capture_output=True, cwd=folder, **user)

    control = (binaries / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log")
    try:
        run(binaries / "initdb", "-D", folder / "data", "-U", "tester", "-A", "trust", "--no-sync")
        run(*control, "-o", f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off", "start")
        try:
            yield f"postgresql+psycopg://tester@/postgres?host={folder}"
        finally:
            run(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
