"""Libraries and global variables of the built programs."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GPT2D_BUILD", ROOT / "build"))

# Libraries that can crash, hang or be attacked through a port are used only in the engines.
PROGRAMS = {
    "daemon/gpt2d": ("libucp", "libucs", "libuct", "libopenblas", "libblas", "libcuda", "libcudart", "libnccl"),
    "ctl/gpt2ctl": ("libucp", "libucs", "libopenblas", "libblas", "libcuda", "libnccl", "libsqlite3", "libevent"),
    "engine/gpt2-engine-cpu": ("libsqlite3", "libevent", "libsystemd", "libcuda", "libnccl"),
}

# Mutable static variables, with the reason for each.
VARIABLES = {
    "seen": "ctl/link/interrupt.c: a signal came",
    "reported": "ctl/link/interrupt.c: and was reported",
    "keyboard": "ctl/link/interrupt.c: the key that ends a wait, as a signal does",
    "heard": "engine/comm/ucx_worker.c: UCX hands its log's handler no context; each thread's own",
    "came": "proto/host/signals.c: a signal came",
    "defaults": "proto/spec/spec_read.c: those of the table, read once",
    "log_state": "daemon/config/log.c: the log",
    "kept": "daemon/config/log.c: the log",
    "writer": "daemon/config/log.c: the log",
}


def tool(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_links(program):
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", tool("readelf", "-d", BUILD / program))
    assert any(name.startswith("libc.so") for name in needed)
    banned = [name for name in needed if name.startswith(PROGRAMS[program])]
    assert not banned, f"{program} links {', '.join(banned)}"


def objects():
    return sorted(path for path in BUILD.rglob("*.o") if "tests" not in path.relative_to(BUILD).parts)


def variables():
    for line in tool("nm", "-A", "-f", "sysv", *objects()).split("\n"):
        columns = [column.strip() for column in line.split("|")]
        if len(columns) == 7 and re.fullmatch(r"\.(t?data|t?bss|data\.(?!rel\.ro).*|bss\..*)|\*COM\*", columns[6]):
            path, name = columns[0].rsplit(":", 1)
            yield Path(path).relative_to(BUILD).as_posix(), re.sub(r"\.\d+$", "", name)


def test_no_mutable_globals():
    """Only variables with a reason in VARIABLES are allowed; everything else is passed in a context."""
    assert len(objects()) > 10
    found = [f"{path}: {name}" for path, name in variables()
        if name not in VARIABLES and not name.startswith((".", "__asan", "__odr_asan", "_ub_", "__ubsan"))]
    assert not found, "\n".join(found)
