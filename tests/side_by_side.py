"""Runs pytest on several files at a time, each in a process of its own.

    side_by_side.py JOBS RESULTS.xml OPTION... -- FILE...

The options are pytest's. What they say comes out file by file, RESULTS.xml holds all their results. The status is
the worst of theirs; 5, nothing collected, only when all say so. An interrupt ends the tests that run, not their report.
"""

import signal
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path

NOTHING_COLLECTED = 5
# they take longest: begun last, one of them would run alone at the end
FIRST = ("test_daemon_runs", "test_faults", "test_supervision")


def in_order(files):
    return sorted(files, key=lambda file: (Path(file).stem not in FIRST, file))


class Queue:
    def __init__(self, files, options, folder):
        self.files, self.options, self.folder = files, options, Path(folder)
        self.lock = threading.Lock()
        self.interrupted = False
        self.statuses = []

    def next(self):
        with self.lock:
            return self.files.pop(0) if self.files and not self.interrupted else None

    def stop(self, *_):
        # the running processes are in this group and got the signal as well
        self.interrupted = True

    def work(self):
        while file := self.next():
            results = self.folder / f"{Path(file).stem}.xml"
            done = subprocess.run([sys.executable, "-m", "pytest", *self.options, f"--junitxml={results}", file],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            status, said = done.returncode, done.stdout
            if not results.exists():
                said += f"{Path(file).name}: no report, status {status}\n".encode()
                status = status or 1
            with self.lock:
                self.statuses.append(status)
                sys.stdout.buffer.write(said)
                sys.stdout.buffer.flush()

    def status(self):
        if self.interrupted or self.files:
            return 2
        ran = [status for status in self.statuses if status != NOTHING_COLLECTED]
        return max(map(abs, ran)) if ran else NOTHING_COLLECTED


def merged(folder):
    root = ElementTree.Element("testsuites")
    for results in sorted(Path(folder).glob("*.xml")):
        root.extend(ElementTree.parse(results).getroot().iter("testsuite"))
    return ElementTree.ElementTree(root)


def main():
    jobs, results, *rest = sys.argv[1:]
    dashes = rest.index("--")
    with tempfile.TemporaryDirectory() as folder:
        queue = Queue(in_order(rest[dashes + 1:]), rest[:dashes], folder)
        signal.signal(signal.SIGINT, queue.stop)
        workers = [threading.Thread(target=queue.work) for _ in range(int(jobs))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        merged(folder).write(results, encoding="utf-8")
    return queue.status()


if __name__ == "__main__":
    sys.exit(main())
