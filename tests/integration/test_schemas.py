"""gpt2ctl's output, gpt2d's messages and a run's files, against the installed JSON Schemas.

Every object refuses what it does not describe: a member that is new needs a row in proto/schema/schema_messages.c,
proto/schema/schema_artifacts.c or ctl/print/schema_outputs.c, from which the manual pages are made too. The clients of
all tests here check each message that they receive (shapes.py).
"""

import csv
import errno
import json
import re
from pathlib import Path

import pytest

import shapes
from engines import PROGRAM
from faults import FAIL, LIBRARY, NEEDS_ROOM, Faults
from helpers import BUILD, ROOT, experiment, refusal, spec, wait_for
from test_ctl_daemon import ctl, started

jsonschema = pytest.importorskip("jsonschema")

SCHEMAS = {name: json.loads((BUILD / folder / f"{name}.schema.json").read_text()) for name, folder in (
    ("output", "ctl"), ("messages", "proto"), ("artifacts", "proto"), ("spec", "proto"))}


def check(schema, value, name=None):
    """value is what the schema's object of that name describes."""
    if name is not None:
        assert name in schema["$defs"], f"{name} is described nowhere"
        schema = {"$schema": schema["$schema"], "$ref": f"#/$defs/{name.replace(' ', '%20')}", "$defs": schema["$defs"]}
    errors = [f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
        for error in jsonschema.Draft202012Validator(schema).iter_errors(value)]
    assert not errors, "\n".join([str(name), *errors[:10]])


@pytest.mark.parametrize("name", SCHEMAS)
def test_it_is_a_schema(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def objects(node, path="#"):
    """(path, schema) of every object described."""
    if isinstance(node, dict):
        if isinstance(node.get("properties"), dict):
            yield path, node
        for key, value in node.items():
            yield from objects(value, f"{path}/{key}")
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from objects(value, f"{path}/{i}")


@pytest.mark.parametrize("name", SCHEMAS)
def test_nothing_passes_undescribed(name):
    found = list(objects(SCHEMAS[name]))
    assert len(found) > 15
    for path, node in found:
        assert node["additionalProperties"] is False, path
        for key, described in node["properties"].items():
            typed = isinstance(described, dict) and {"type", "enum", "const", "$ref", "anyOf"} & set(described)
            assert typed or name == "spec" and (key, described) == ("comment", True), f"{path}: {key}"


def test_memory_of_older_builds():
    """Stored checks of a run match the build that made them."""
    first = ("parameters_bytes", "gradients_bytes", "master_bytes", "moment_m_bytes", "moment_v_bytes",
        "activations_bytes", "logits_bytes", "logits_elems", "batch_bytes", "comm_bytes", "total_bytes",
        "planned_bytes", "available_bytes", "free_bytes")
    check(SCHEMAS["output"], dict.fromkeys(first, 1), "check_memory")


# what a schema cannot say: one value against another, a path against the disk, a key that stands twice
RELATIONS = re.compile(r"twice|has no meaning|cannot be made|is not (a multiple|train_micro)|beyond|the same work|required"
    r"|is more than|greater than|less than|fewer than|splits|both (on|must)|only \"fp32\"|not allowed without|ranks asked"
    r"|more than 16 arms|relative path|control character|a path of|--set|is not allowed, a train|together with|no room for|as another arm is"
    r"|\d[KMG] is not allowed")  # the schema has the form of a size with a unit, not its range


STANDARD = {"model": "nano", "data": {"kind": "synthetic"}, "seq_len": 64, "train_micro_batch_size_per_gpu": 4,
    "work": {"optimizer_steps": 10}}


def test_specs_as_the_parser_has_them():
    """Every spec of the parser's tests: accepted specs are valid, and specs that the parser alone refuses are not."""
    validator = jsonschema.Draft202012Validator(SCHEMAS["spec"])
    taken = refused = 0
    for case in re.split(r"^== ", (ROOT / "tests/unit/spec/cases.txt").read_text(), flags=re.M)[1:]:
        options, text, expected = re.fullmatch(r".*?\n((?:@ .*?\n)*)(.*?)\n--\n(.*)", case, flags=re.S).groups()
        if "@ escaped\n" in options or '"sweep"' in text:  # the schema does not say which keys a sweep may have
            continue
        errors = [line[2:] for line in expected.splitlines() if line.startswith("! ")]
        try:
            value = json.loads("{" + text[1:] + "}" if text[:1] == "+" else text)
        except ValueError:
            assert errors, case
            continue
        if text[:1] == "+":
            without = " ".join(re.findall("@ without (.*)", options)).split()
            value = {key: value for key, value in STANDARD.items() if key not in without} | value
        if not errors:
            taken += 1
            check(SCHEMAS["spec"], value)
        elif not all(RELATIONS.search(error) for error in errors):
            refused += 1
            assert not validator.is_valid(value), case
    assert taken > 50 and refused > 50


def test_every_kind_is_described():
    kinds = set(re.findall(r'output_print\([^,]+, "([^"]+)"', "".join(path.read_text() for path in (ROOT / "ctl").rglob("*.c"))))
    assert len(kinds) > 10
    assert kinds - set(SCHEMAS["output"]["$defs"]) == set()


def test_every_message_is_described():
    """Those of protocol.h are those of the table, each with its params and, of a request, its result."""
    named = re.findall(r'^#define (METHOD|EVENT|ENGINE|SEGMENT|CHECK|GENERATE|NODE)_\w+\s+"([^"]+)"', (ROOT / "proto/protocol.h").read_text(),
        flags=re.M)
    suffixes = {"METHOD": (" params", " result"), "EVENT": ("",)}
    expected = {name + suffix for kind, name in named for suffix in suffixes.get(kind, (" params",))}
    assert expected == {root["$ref"].removeprefix("#/$defs/").replace("%20", " ") for root in SCHEMAS["messages"]["anyOf"]}


def keys_of(text):
    return set(re.findall(r"^\.It Ic (\S+)$", text, flags=re.M))


def test_every_key_is_in_the_manual():
    for name, page in (("output", BUILD / "ctl/gpt2ctl-json.5"), ("artifacts", BUILD / "proto/gpt2d-artifacts.5")):
        text = page.read_text()
        for title, described in SCHEMAS[name]["$defs"].items():
            section = re.search(rf"^\.Ss {re.escape(title)}\n(.*?)(?=^\.S[sh] )", text, flags=re.M | re.S)
            assert section, title
            keys = set(described["properties"]) - {"schema", "kind", "id", "seq", "at", "name"}
            assert keys <= keys_of(section[1]), title
    text = (BUILD / "proto/gpt2d-protocol.7").read_text()
    for title, described in SCHEMAS["messages"]["$defs"].items():
        if title.endswith((" params", " result")):
            assert set(described["properties"]) <= keys_of(text), title


def lines(result, fake=False):
    """The objects printed, checked; what a fake engine makes of a spec is left out."""
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert found, result
    for line in found:
        if fake and "checks" in line:
            line["checks"] = []
        check(SCHEMAS["output"], line, line["kind"])
    return found


def test_a_drift_is_found(daemon):
    """By jsonschema, and by shapes.py."""
    with daemon() as d:
        status = lines(ctl(d, "status", "--json"))[0]
    shapes.check("output", "status", status)
    for change in ({"more": 1}, {"queued": "1"}, {"counts": {**status["counts"], "lost": 0}}, {"schema": 2}):
        with pytest.raises(AssertionError):
            check(SCHEMAS["output"], {**status, **change}, "status")
        with pytest.raises(AssertionError):
            shapes.check("output", "status", {**status, **change})
    with pytest.raises(AssertionError):
        check(SCHEMAS["output"], {key: value for key, value in status.items() if key != "queued"}, "status")
    check(SCHEMAS["output"], status)
    with pytest.raises(AssertionError):
        check(SCHEMAS["output"], {"schema": 1, "kind": "nothing"})


# ---- a run ----

def marker(text):
    """key=value of a marker, numbers as numbers."""
    assert text.startswith("[Rank 0] RUN_COMPLETE ")
    pairs = dict(word.split("=", 1) for word in text.split()[3:])
    return {key: json.loads(value) if re.fullmatch(r"[0-9.e+-]+", value) else value for key, value in pairs.items()}


def check_segment(folder, ranks):
    names = {path.name for path in folder.iterdir()}
    tables = {"step_log.csv", "rank_times.csv"} if ranks > 1 else {"step_log.csv"}
    assert names == {"spec.json", "training_metrics.json", "launcher_metadata.json", "train.log", "summary.json", "RUN_COMPLETE.txt"} | tables
    check(SCHEMAS["spec"], json.loads((folder / "spec.json").read_text()))
    for name in ("training_metrics.json", "launcher_metadata.json", "summary.json"):
        check(SCHEMAS["artifacts"], json.loads((folder / name).read_text()), name)
    check(SCHEMAS["artifacts"], marker((folder / "RUN_COMPLETE.txt").read_text()), "RUN_COMPLETE.txt")
    for name in tables:
        with open(folder / name, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert rows
        for row in rows:
            values = {key: value if key in ("timestamp", "arm") else json.loads(value or "null") for key, value in row.items()}
            check(SCHEMAS["artifacts"], values, name)


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_a_store_that_fails(daemon, tmp_path):
    """Status, and the events of a run meanwhile."""
    faults = Faults(tmp_path)
    with daemon(home=tmp_path, environment=faults.environment) as d, d.client() as c, d.client() as raw:
        run = c.submit(spec("long-ms20", 100000))
        raw.call("follow", id=run)
        follows = started(d, "follow", run, "--json")
        wait_for(lambda: c.call("status")["daemon"]["clients"] == 3, "the follower")
        assert json.loads(follows.stdout.readline())["kind"].startswith("run.")
        faults.daemon.arm(FAIL, errno.ENOSPC, ops=NEEDS_ROOM)
        refusal(c.submit, spec("refused"))
        assert lines(ctl(d, "status", "--json"))[0]["store"]["errno"] == "ENOSPC"
        faults.daemon.disarm()
        wait_for(lambda: c.call("status")["store"] is None, "its end")
        c.call("cancel", id=run)
        out, err = follows.communicate(timeout=60)
        assert follows.returncode == 6, err
        events = [json.loads(line) for line in out.splitlines()]
        for event in events:
            check(SCHEMAS["output"], event, event["kind"])
        reported = [event["store"] for event in events if event["kind"] == "run.store"]
        assert len(reported) == 2 and reported[0]["path"] == f"{d.state}/gpt2d.db" and reported[1] is None
        sent = []
        while not sent or sent[-1]["method"] != "run.done":
            sent.append(raw.event())
            check(SCHEMAS["messages"], sent[-1])
        assert [event["params"]["store"] for event in sent if event["method"] == "run.store"] == reported


@pytest.mark.skipif(not PROGRAM.exists(), reason="no engine was built")
def test_a_real_run(daemon, tmp_path):
    """An experiment over real data with validation: every line printed, every event, every file."""
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question. " * 400)
    token = tmp_path / "text.bin"
    with daemon(ranks=2, engine=PROGRAM) as d:
        lines(ctl(d, "data", "prepare", "--json", "--val-fraction", "0.2", "-o", token, text))
        run = experiment("ab", 25, data={"train": str(tmp_path / "text_train.bin"), "val": str(tmp_path / "text_val.bin")},
            work={"optimizer_steps": 25, "warmup_steps": 2, "validation_steps": 2}, gpus=2)
        check(SCHEMAS["spec"], run)
        plan = lines(ctl(d, "submit", "-", "--dry-run", "--json", run=run))[0]
        check(SCHEMAS["spec"], plan["spec"])
        followed = lines(ctl(d, "submit", "-", "--follow", "--json", run=run))
        assert {line["kind"] for line in followed} >= {"submit", "run.state", "run.segment", "run.step", "run.artifact",
            "run.done"}
        assert followed[-1]["state"] == "done"
        shown = lines(ctl(d, "show", 1, "--json"))[0]
        check(SCHEMAS["spec"], shown["spec"])
        for args in (["status"], ["top", "-n", 2, "-i", 0.1], ["list"], ["compare", 1], ["wait", 1], ["cancel", 1],
                ["version"], ["help"], ["help", "submit"], ["artifacts", 1], ["logs", 1], ["logs"],
                ["prune", "--keep", 0, "-n"], ["keep", 1], ["metrics"], ["logs", 1, "-f"],
                ["artifacts", 1, "--copy", tmp_path / "copy"]):
            lines(ctl(d, *args, "--json"))
        folder = Path(shown["run"]["dir"])
        assert {path.name for path in folder.iterdir()} == \
            {"spec.json", "segments", "experiment.json", "summary.csv", "RUN_COMPLETE.txt"}
        check(SCHEMAS["artifacts"], json.loads((folder / "experiment.json").read_text()), "experiment.json")
        check(SCHEMAS["spec"], json.loads((folder / "spec.json").read_text()))
        check(SCHEMAS["artifacts"], marker((folder / "RUN_COMPLETE.txt").read_text()), "RUN_COMPLETE.txt-experiment")
        assert len(shown["segments"]) == 8
        for segment in shown["segments"]:
            check_segment(Path(segment["dir"]), 2)
        lines(ctl(d, "submit", "-", "--follow", "--json", run=spec("single", gpus=1)))
        check_segment(Path(lines(ctl(d, "show", 2, "--json"))[0]["run"]["dir"]), 1)
        with d.client() as c:
            for event in c.follow(c.submit(spec("events", 5))):
                check(SCHEMAS["messages"], event, event["method"])
        lines(ctl(d, "shutdown", "--json"))
        d.process.wait(60)


def test_what_goes_wrong(daemon):
    """Failures, other states, a run in mid-step and a log message."""
    with daemon(ranks=2) as d:
        refused = lines(ctl(d, "submit", "-", "--json", run={"nam": 1}))[0]
        assert refused["error"]["errors"]
        lines(ctl(d, "submit", "-", "--json", run=spec("wide", gpus=64)))
        lines(ctl(d, "show", 99, "--json"))
        lines(ctl(d, "wait", 99, "--json"))
        lines(ctl(d, "--json", "frobnicate"))
        for name in ("logs-fail.r0.s2", "crash.r1.s2"):
            lines(ctl(d, "submit", "-", "--follow", "--json", run=spec(name, gpus=2)))
        with d.client() as c:
            run = c.submit(spec("ms20-logs", 100000))
            c.submit(spec("behind"))
            c.call("follow", id=run)
            while (event := c.event())["method"] != "run.step":
                check(SCHEMAS["messages"], event, event["method"])
            for args in (["status"], ["top", "-n", 2, "-i", 0.1], ["list"], ["show", run], ["cancel", run + 1], ["cancel", run]):
                lines(ctl(d, *args, "--json"), fake=True)
            while event["method"] != "run.done":
                check(SCHEMAS["messages"], event, event["method"])
                event = c.event()
            check(SCHEMAS["messages"], event, event["method"])
        lines(ctl(d, "list", "--json"))
        for number in range(1, run + 2):
            lines(ctl(d, "show", number, "--json"), fake=True)
