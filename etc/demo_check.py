"""What etc/demo promises, checked: demo_check.py DRY-RUN.json SHOW.json COMPARE.json, as gpt2ctl --json prints them.

The arms have different effective bucket plans, every segment outside void blocks is done and its folder is complete, all
arms did equal work. Prints one line for each; status 1 when one does not hold.
"""

import json
import sys
from pathlib import Path

ARTIFACTS = ("spec.json", "training_metrics.json", "launcher_metadata.json", "step_log.csv", "rank_times.csv", "train.log")
MARKER = "RUN_COMPLETE.txt"
wrong = 0


def check(holds, what):
    global wrong
    print(f"  {'ok ' if holds else 'NO '} {what}")
    wrong += not holds


dry_run, show, compare = (json.loads(Path(name).read_text()) for name in sys.argv[1:4])

plans = {arm["arm"]: arm["check"]["plan"]["n_reduce"] for arm in dry_run["arms"] if not arm["arm"].endswith("-aa")}
check(len(set(plans.values())) == len(plans) > 1,
    "different plans: " + ", ".join(f"{n} reduce bucket{'s' * (n != 1)} in {arm}" for arm, n in plans.items()))

kept = [segment for segment in show["segments"] if segment["void"] is None]
done = [segment for segment in kept if segment["state"] == "done"]
void = len({segment["block"] for segment in show["segments"] if segment["void"] is not None})
check(show["run"]["state"] == "done" and len(done) == len(kept) > 0,
    f"run {show['run']['id']} is {show['run']['state']}, {len(done)} of {len(kept)} segments are done"
    + (f" ({void} void block{'s' * (void != 1)} replaced)" if void else ""))

missing = [str(Path(segment["dir"]) / name) for segment in done for name in (*ARTIFACTS, MARKER)
    if not (Path(segment["dir"]) / name).is_file()]
missing += [str(Path(show["run"]["dir"]) / name) for name in ("experiment.json", "summary.csv", MARKER)
    if not (Path(show["run"]["dir"]) / name).is_file()]
check(not missing, "every segment and the experiment have their artifacts and " + MARKER
    + "".join(f"\n       no {name}" for name in missing))

check(all(row["work"]["equal"] for row in compare["comparisons"]), "the arms did equal work in every block")
check(all(arm["losses_identical"] for arm in compare["arms"]), "their losses are the same to the last bit")
sys.exit(1 if wrong else 0)
