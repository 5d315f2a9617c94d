"""Many short runs: memory, descriptors and shared memory stay as they were after the first ones.

GPT2D_LONG=1: a thousand of them.
"""

import os
import re

from engines import PROGRAM
from faults import LONG
from helpers import Daemon, experiment, spec, wait_for

SHARED = re.compile(r"/dev/shm/|/SYSV|memfd:")


def processes(d):
    """pid of gpt2d, of its ranks and of its checker, by what they are."""
    with open(f"/proc/{d.process.pid}/task/{d.process.pid}/children") as f:
        children = sorted(map(int, f.read().split()))
    names = {}
    for pid in children:
        with open(f"/proc/{pid}/cmdline") as f:
            words = f.read().split("\0")
        role = words[words.index("--role") + 1]
        names[role if role == "check" else f"rank{words[words.index('--rank') + 1]}"] = pid
    return {"gpt2d": d.process.pid, **names}


def measure(d, pids):
    """(resident KiB, descriptors, shared mappings, threads) of each, with one client."""
    with d.client() as c:
        wait_for(lambda: c.call("status")["daemon"]["clients"] == 1, "the end of other clients")
        return measure_now(pids)


def settled(d, pids, before):
    """The same, once there is no more than before of all but memory: a file may still be being written."""
    def seen():
        now = measure(d, pids)
        return all(a <= b for name in pids for a, b in zip(now[name][1:], before[name][1:])) and now
    return wait_for(seen, f"no more than {before}")


def measure_now(pids):
    found = {}
    for name, pid in pids.items():
        with open(f"/proc/{pid}/status") as f:
            status = f.read()
        with open(f"/proc/{pid}/maps") as f:
            shared = sum(1 for line in f if SHARED.search(line))
        resident, threads = (int(re.search(key + r":\s+(\d+)", status)[1]) for key in ("VmRSS", "Threads"))
        found[name] = (resident, len(os.listdir(f"/proc/{pid}/fd")), shared, threads)
    return found


def work(d, runs):
    with d.client() as c:
        for i in range(runs):
            run = experiment("arms", steps=1, repetitions=1) if i % 10 == 9 else spec("short", steps=2)
            end = c.wait(c.submit({**run, "gpus": 1 + i % 2}))
            assert end["state"] == "done", end


def test_many_runs_leave_nothing(tmp_path):
    warm, more = (500, 1000) if LONG else (40, 40)
    with Daemon(home=tmp_path, ranks=2, engine=PROGRAM) as d:
        work(d, warm)
        pids = processes(d)
        before = measure(d, pids)
        for _ in range(20):
            before = min(before, measure(d, pids), key=lambda found: [figures[1:] for figures in found.values()])
        seen = [before]
        for _ in range(4):
            work(d, more // 4)
            seen.append(settled(d, pids, before))
        after = seen[-1]
        assert processes(d) == pids
        for name in pids:
            print(name, "resident KiB", *(found[name][0] for found in seen), " descriptors, shared, threads",
                *(found[name][1:] for found in seen))
        if not os.environ.get("ASAN_OPTIONS"):  # whose own memory grows
            for name in pids:
                # in the short one SQLite's page cache, 2 MiB, is still being filled
                assert after[name][0] <= before[name][0] * 1.01 + (0 if LONG else 2560), name
        files = {os.path.basename(line.split()[-1]) for pid in pids.values() for line in open(f"/proc/{pid}/maps")
            if "/dev/shm/" in line and "(deleted)" not in line}
    wait_for(lambda: not files & set(os.listdir("/dev/shm")), "the end of what was shared")
