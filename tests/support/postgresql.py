"""A PostgreSQL of a test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from programs import program

_SECONDS = 120


@contextmanager
def postgresql() -> Iterator[str]:
    """Starts a server on a fresh database, and ends it; gives SQLAlchemy's address of it.

    It listens on a socket in a folder of its own and on no port, so that two at once do not meet.
    """
    pytest.importorskip("psycopg")
    debian = os.pathsep.join(str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
    initdb = program("initdb", package="postgresql", places=debian)
    control = program("pg_ctl", package="postgresql", places=debian)
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="oapg"))  # a socket's path must be short
    options: dict[str, Any] = {"check": True, "timeout": _SECONDS, "cwd": folder, "stdout": subprocess.DEVNULL}
    if os.geteuid() == 0:  # PostgreSQL refuses to be root
        shutil.chown(folder, "postgres", "postgres")
        options |= {"user": "postgres", "group": "postgres", "extra_groups": []}
    data = folder / "data"
    settings = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    try:
        subprocess.run([initdb, f"--pgdata={data}", "--username=mlflow", "--auth=trust", "--no-sync"], **options)
        command = [control, f"--pgdata={data}", "--wait", f"--timeout={_SECONDS}"]
        subprocess.run([*command, f"--log={folder}/log", f"--options={settings}", "start"], **options)
        try:
            yield f"postgresql+psycopg://mlflow@/postgres?host={folder}"
        finally:
            subprocess.run([*command, "--mode=fast", "stop"], **options)
    finally:
        shutil.rmtree(folder)
