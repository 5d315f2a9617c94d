"""gpt2ctl against a gpt2d whose every number is as large or as small as JSON's integers get: nothing wraps around.

What undefined behaviour would do shows with the sanitizers only: they end the program with another code.
"""

import json
import re

import pytest

from client import ctl, done, experiment, segment, status_reply, step
from fake_daemon import FakeDaemon, follow_script, run_object

LARGEST = 2**63 - 1
FILE = {"path": "step_log.csv", "bytes": 1, "sha256": "ab" * 32, "announced": 2, "segment": 1, "modified_at": "2026-01-08T19:50:57Z"}
PLAN = {"reduce_elems": 1, "n_reduce": 1, "gather_elems": 1, "n_gather": 1, "arena_elems": 1, "elem_bytes": 4}


def blown(value, number):
    """The same with number in the place of each number."""
    if isinstance(value, dict):
        return {key: blown(inner, number) for key, inner in value.items()}
    if isinstance(value, list):
        return [blown(inner, number) for inner in value]
    return number if isinstance(value, (int, float)) and not isinstance(value, bool) else value


CHECK = {"arm": "A", "spec_sha256": "ab" * 32, "check": {"plan": PLAN, "optimizer_steps": 1, "model": {"parameters": 1,
    "vocabulary": 1, "padded_vocabulary": 1}, "memory": {"total_bytes": 1, "planned_bytes": 2, "available_bytes": 3,
        "moment_m_bytes": 1, "moment_v_bytes": 1, "activations_none_bytes": 1}, "traffic": {"reduce_scatter_bytes": 1},
    "data": {"train": {"path": "a.bin", "tokens": 1, "needed": 2}}, "warnings": []}}


def show(params, connection):
    segments = [segment(n, "ABBA"[n], [1000, 2000]) for n in range(4)]
    return {**experiment(*segments)(params, connection), "checks": [CHECK]}


METHODS = {
    "status": status_reply,
    "show": show,
    "list": lambda params, connection: {"runs": [run_object(1), run_object(2)], "next": None},
    "artifacts": lambda params, connection: {"id": 1, "name": "a", "state": "done", "dir": "/d", "files": [FILE] * 3,
        "missing": [FILE] * 3, "left_out": 1, "next": None},
    "artifact-read": lambda params, connection: {"data": ""},
    "prune": lambda params, connection: {"runs": [{**run_object(1), "bytes": 1}] * 3, "bytes": 1, "next": None},
    "logs": lambda params, connection: {"id": 1, "name": "a", "state": "done", "lines": [{"n": 1, "at": None, "rank": 1,
        "level": "info", "message": "x"}], "dropped": 1, "next": 1, "more": False, "open": False},
    "dry-run": lambda params, connection: {"spec": {}, "spec_sha256": "ab" * 32, "segments": 4, "order": [{"block": 1,
        "position": 1, "arm": "A"}] * 4, "arms": [CHECK, {**CHECK, "arm": "B"}]},
    "drain": lambda params, connection: {"drained": None, "released": None, "already": False, "running": 3, "queued": 4,
        "engine": "ready", "took_s": 0.5},
    "priority": lambda params, connection: {"id": 1, "name": "a", "priority": 1, "before": 1, "outlook": {"position": 1,
        "waiting": "w", "starts_in_s": 1}},
}


SAYS = {LARGEST: "up 9.22e+18 s, 0 B resident", 2**53: "up 9.01e+15 s, 9.01 PB resident"}


def expected(words, number):
    """Exit status and standard error: some numbers are no place to read on from."""
    if words[0] == "logs" and number not in (LARGEST, 2**53):
        return 1, "gpt2ctl: logs: gpt2d sent no next page\n"
    return (1 if words[0] == "artifacts" else 0), ""


def without_missing(text):
    """That some files are is told on standard error."""
    return re.sub(r"^gpt2ctl: (missing step_log.csv|left out -?\d+ file|left out step_log.csv: ).*\n", "", text, flags=re.M)


@pytest.mark.parametrize("number", [LARGEST, -LARGEST - 1, 2**53, -2**53, 1e300, -1e300])
def test_every_number(path, tmp_path, spec, number):
    def of(method):
        def reply(params, connection):
            value = METHODS[method](params, connection)
            return blown(value, number) | ({"spec": value["spec"]} if method == "show" else {})
        return reply
    events = [(name, {**blown(params, number), "seq": n + 1}) for n, (name, params) in enumerate([step(3, 1, segments=4),
        step(5, 2, segments=4), done(3, dropped=5)])]
    run = {**blown(run_object(1, state="running"), number), "id": 1}
    with FakeDaemon(path, follow=follow_script(run, events), **{method: of(method) for method in METHODS}):
        for words in (["status"], ["list"], ["show", 1], ["compare", 1], ["artifacts", 1],
                ["artifacts", 1, "--copy", tmp_path / "copy"], ["prune", "--keep", 1, "--yes"], ["logs", 1], ["logs", 1, "-f"],
                ["follow", 1], ["wait", 1, "--timeout", 60], ["submit", "--dry-run", spec], ["drain"], ["priority", 1, 2], ["top", "--count", 2, "--interval", 0.1]):
            for more in ([], ["--json"]):
                result = ctl(*words, *more, path=path)
                assert (result.returncode, without_missing(result.stderr)) == expected(words, number), (words, result)
                if more:
                    assert all(json.loads(line)["schema"] == 1 for line in result.stdout.splitlines()), (words, result)
                elif number > 0:
                    assert not re.search(r"(?<!\w)-\d", result.stdout), (words, result)
                if words == ["status"] and not more and number in SAYS:
                    assert SAYS[number] in result.stdout, result
