"""Counts test cases: `tally.py meson testlog.json` or `tally.py junit results.xml`.

First line of the output: passed, failed, skipped. Then a line for each that failed or was skipped. A
meson test that prints TAP (cmocka with CMOCKA_MESSAGE_OUTPUT=TAP) counts by its cases, any other as one.
"""

import json
import re
import sys
import xml.etree.ElementTree as ElementTree

RESULT = re.compile(r"^(ok|not ok) (\d+)(?: # SKIP ?(.*)| (?:- )?(.*))?$")
PLAN = re.compile(r"^1\.\.(\d+)$")
CAUSE = re.compile(r"runtime error:|ERROR: \w+Sanitizer|Assertion .* failed|^E   ")
GOOD = {"OK", "EXPECTEDFAIL"}


def last_lines(text, n=8):
    """What names a cause and the end of an output, indented, for a person to see what went wrong."""
    lines = text.rstrip().split("\n")
    kept = [line for line in lines[:-n] if CAUSE.search(line)][:n] + lines[-n:]
    return "".join("\n      " + line for line in kept if line)


def meson_cases(test):
    """(state, name, why) of each case of one line of meson's testlog.json."""
    name, output = test["name"], test.get("stdout") or ""
    planned, cases, notes = 0, [], []
    for line in output.split("\n"):
        plan, result = PLAN.match(line), RESULT.match(line)
        if plan:
            planned += int(plan[1])
        elif result:
            case = f"{name}: {result[4] or result[3] or result[2]}"
            if result[3] is not None:
                cases.append(["skipped", case, "skipped by the test"])
            else:
                cases.append(["passed" if result[1] == "ok" else "failed", case, ""])
        elif line.startswith("# ") and cases and cases[-1][0] == "failed":
            cases[-1][2] += "\n      " + line[2:]
    if test["result"] == "SKIP" and not cases:
        return [["skipped", name, last_lines(output, 1).strip() or "no reason given"]]
    how = f"{test['result'].lower()}, exit status {test.get('returncode')}"
    end = last_lines(output + "\n" + (test.get("stderr") or ""))
    if not planned and not cases:
        return [["passed" if test["result"] in GOOD else "failed", name, how + end]]
    missing = planned - len(cases)
    cases += [["failed", f"{name}: case {len(cases) + n + 1} of {planned}",
        "never ended" + ("; " + how + end if n == 0 else "")] for n in range(missing)]
    if test["result"] not in GOOD and all(case[0] != "failed" for case in cases):
        cases.append(["failed", name, how + end])
    return cases


def meson(path):
    with open(path, encoding="utf-8") as log:
        return [case for line in log if line.strip() for case in meson_cases(json.loads(line))]


def junit(path):
    cases = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rsplit('.', 1)[-1]}: {case.get('name')}"
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        if bad is not None:
            cases.append(["failed", name, bad.get("message", "").split("\n")[0] + last_lines(bad.text or "")])
        elif skipped is not None:
            cases.append(["skipped", name, skipped.get("message", "no reason given")])
        else:
            cases.append(["passed", name, ""])
    return cases


def report(cases):
    counts = [sum(case[0] == state for case in cases) for state in ("passed", "failed", "skipped")]
    lines = [" ".join(map(str, counts))]
    lines += [f"    {state} {name}: {why}" for state, name, why in cases if state != "passed"]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report({"meson": meson, "junit": junit}[sys.argv[1]](sys.argv[2])))
