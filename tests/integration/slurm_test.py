"""slurm/ with a real Slurm: tests/run slurm."""

import json
import os
import re
import shutil
import subprocess

import pytest

import slurm_cluster
from helpers import BUILD, ROOT, experiment, spec, wait_for

pytestmark = pytest.mark.skipif(bool(slurm_cluster.impossible()), reason=slurm_cluster.impossible() or "no reason")
SLURM = ROOT / "slurm"
LISTS = ["n1", "n[1-2]", "gn-[0013-0014]", "gn-[0013-0014,0020],login1", "a[1,3,5-7]", "rack[1-2]n[01-03],x9", "n[08-11]",
    "n[0-0]", "a1,a2,b[9-10]", "c[098-102]", "x[1-2]y[3,5],z1", "n[1-3,2]", "n[01-3]"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm", numbered=True)
    with slurm_cluster.Cluster(2, folder) as c:
        c.environment.update(PATH=f"{BUILD / 'daemon'}:{BUILD / 'ctl'}:{c.environment['PATH']}", GPT2D_LOCAL=str(c.local),
            GPT2D_OPTIONS="--threads 1", GPT2D_DEVICE="cpu")
        yield c


@pytest.fixture
def results(cluster, tmp_path):
    """RUN_DIR, and a check that no process and no folder of gpt2d is left on the nodes."""
    folder = tmp_path / "results of 100%"
    cluster.environment["RUN_DIR"] = str(folder)
    yield folder
    cluster.call("scancel", "--user=root")
    wait_for(lambda: cluster.idle() == 2, "idle nodes")
    for job in sorted(cluster.folder.glob("job-*.out")):
        print(f"--- {job.name}", job.read_text(errors="replace"), sep="\n")
    left = [line for host in cluster.hosts for line in host.running("gpt2")]
    left += [line for host in cluster.hosts for line in host.output(["find", cluster.local, "-mindepth", "1"]).splitlines()]
    assert not left


def write(folder, *specs):
    files = []
    for s in specs:
        files.append(folder / f"{s['name']}.json")
        files[-1].write_text(json.dumps(s))
    return files


def metrics(folder):
    return [json.loads(file.read_text()) for file in sorted(folder.rglob("training_metrics.json"))]


def bash(script, *words):
    return subprocess.run(["bash", "-c", f". {SLURM}/map.sh; {script}", "bash", *words], capture_output=True, text=True,
        check=False, env={**os.environ, "SLURM_TASKS_PER_NODE": "2(x2),1", "SLURM_JOB_CPUS_PER_NODE": "8(x2),4"})


@pytest.mark.parametrize("names", LISTS)
def test_node_list(cluster, names):
    assert bash('map_expand "$1"', names).stdout == cluster.call("scontrol", "show", "hostnames", names)


@pytest.mark.parametrize("names", ["a[1", "a]", "a[]", "a[x]", "a,,b", ",a", "a[", "a[3-1]"])
def test_node_list_that_is_invalid(names):
    done = bash('map_expand "$1"', names)
    assert done.returncode == 1 and done.stderr.startswith("node list ")


def test_ranks_and_processors():
    assert bash("map_cpus").stdout == "4\n"
    assert bash("SLURM_TASKS_PER_NODE='4(x3)' map_ranks").stdout == "4\n"
    assert bash("SLURM_GPUS_ON_NODE=8 map_ranks").stdout == "8\n"
    assert bash("GPT2D_RANKS=3 map_ranks").stdout == "3\n"
    assert bash("SLURM_GPUS_ON_NODE=8 GPT2D_DEVICE=cpu SLURM_TASKS_PER_NODE='4(x3)' map_ranks").stdout == "4\n"
    assert bash("CUDA_VISIBLE_DEVICES=0,2 map_gpus").stdout == "2\n"
    uneven = bash("map_ranks")
    assert uneven.returncode == 1 and "different numbers of tasks" in uneven.stderr


def test_one_node(cluster, results, tmp_path):
    files = write(tmp_path, spec("first"), experiment("second"))
    job = cluster.sbatch("--ntasks-per-node=2", SLURM / "gpt2d-one.sbatch", *files)
    assert cluster.end(job)["JobState"] == "COMPLETED", cluster.output(job)
    assert (results / "summary.txt").read_text() == "done        first\ndone        second\n"
    assert all((results / name / "RUN_COMPLETE.txt").exists() for name in ("first", "second"))
    found, = metrics(results / "first")
    assert found["scheduler"] == {"type": "slurm", "job_id": str(job), "nodelist": "n1", "nnodes": "1", "procid": "0",
        "localid": "0", "partition": "all"}
    assert found["hardware"]["world_size"] == 2 and found["hardware"]["cluster"] == "test" and found["host"]["hostname"] == "n1"
    launcher, = (results / "first").rglob("launcher_metadata.json")
    assert json.loads(launcher.read_text())["slurm"] == {"job_id": str(job), "nodelist": "n1", "hosts": "n1"}
    assert "verdict" in (results / "second" / "compare.txt").read_text()
    assert f"JobId={job}" in (results / "job.txt").read_text()
    assert all((results / name).exists() for name in ("topo.txt", "ibstat.txt", "log/n1.log"))


def test_gpus_of_the_job(cluster, results, tmp_path):
    """They are visible on each node, and without GPT2D_DEVICE=cpu they are the ranks."""
    files = write(tmp_path, spec("gpus"))
    job = cluster.sbatch("--nodes=2", "--gpus-per-node=2", SLURM / "gpt2d.sbatch", *files)
    assert cluster.end(job)["JobState"] == "COMPLETED", cluster.output(job)
    launcher, = results.rglob("launcher_metadata.json")
    assert json.loads(launcher.read_text())["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    shutil.rmtree(results)
    job = cluster.sbatch("--gpus-per-node=2", SLURM / "gpt2d-one.sbatch", *files, GPT2D_DEVICE="", GPT2D_OPTIONS="-nv")
    assert cluster.end(job)["JobState"] == "FAILED"
    settings, = (file.read_text().splitlines() for file in results.rglob("n[12].out"))
    assert {"device = cuda", "ranks = 2"} <= set(settings) or "gpt2-engine-cuda" in settings[0]


@pytest.mark.parametrize("options", [("--gpus=4",), ("--gpus-per-task=1", "--ntasks-per-node=2"), ("--gres=gpu:2",),
    ("--gpus-per-node=2", "--cpus-per-gpu=2")], ids=" ".join)
def test_ways_to_ask_for_gpus(cluster, results, tmp_path, options):
    """Each node's gpt2d has the two GPUs of its node; srun takes these options from the environment."""
    job = cluster.sbatch("--nodes=2", *options, SLURM / "gpt2d.sbatch", *write(tmp_path, spec("gpus")), GPT2D_RANKS="2")
    assert cluster.end(job)["JobState"] == "COMPLETED", cluster.output(job)
    launcher, = results.rglob("launcher_metadata.json")
    assert json.loads(launcher.read_text())["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_run_dir_is_not_writable(cluster, results, tmp_path):
    host = cluster.hosts[0]
    results.mkdir()
    host.output(["mount", "-t", "tmpfs", "none", results])
    host.output(["mkdir", results / "log"])
    host.output(["mount", "-o", "remount,ro", results])
    job = cluster.sbatch("--nodelist=n1", SLURM / "gpt2d-one.sbatch", *write(tmp_path, spec()))
    assert cluster.end(job)["JobState"] == "FAILED"
    assert f"RUN_DIR {results} is not writable" in cluster.output(job)


def test_a_copy_of_the_script(cluster, results, tmp_path):
    """Its folder has no job.sh."""
    script = shutil.copy(SLURM / "gpt2d-one.sbatch", tmp_path)
    files = write(tmp_path, spec("copied"))
    job = cluster.sbatch(script, *files)
    assert cluster.end(job)["JobState"] == "FAILED" and "set GPT2D_SLURM to its folder" in cluster.output(job)
    job = cluster.sbatch(script, *files, GPT2D_SLURM=str(SLURM))
    assert cluster.end(job)["JobState"] == "COMPLETED", cluster.output(job)


def test_no_room_for_results(cluster, results, tmp_path):
    host = cluster.hosts[0]
    results.mkdir()
    host.output(["mount", "-t", "tmpfs", "-o", "size=64k", "none", results])
    job = cluster.sbatch("--nodelist=n1", SLURM / "gpt2d-one.sbatch", *write(tmp_path, spec("large", 200)))
    assert cluster.end(job)["JobState"] == "FAILED"
    assert "No space left" in cluster.output(job) and "incomplete  large" in cluster.output(job)


def test_no_spec(cluster, results):
    job = cluster.sbatch(SLURM / "gpt2d-one.sbatch")
    assert cluster.end(job)["JobState"] == "FAILED"
    assert "no spec" in cluster.output(job)


def test_a_failing_arm(cluster, results, tmp_path):
    broken = experiment("broken", optimizer={"type": "AdamW", "params": {"lr": 1e-3}})
    broken["arms"]["b"] = {"optimizer": {"params": {"lr": 1e30}}}
    files = write(tmp_path, broken, spec("after"))
    job = cluster.sbatch(SLURM / "gpt2d-one.sbatch", *files)
    assert cluster.end(job)["JobState"] == "FAILED", cluster.output(job)
    assert (results / "summary.txt").read_text() == "incomplete  broken\ndone        after\n"
    states = {m["gpt2d"]["arm"]: m["gpt2d"]["status"] for m in metrics(results / "broken.incomplete")}
    assert states["a"] == "completed" and states["b"] == "failed"
    assert "nonfinite" in (results / "broken.incomplete" / "log.txt").read_text()


def test_a_spec_that_is_refused(cluster, results, tmp_path):
    files = write(tmp_path, spec("refused", seq_len=0), spec("after"))
    job = cluster.sbatch(SLURM / "gpt2d-one.sbatch", *files)
    assert cluster.end(job)["JobState"] == "FAILED"
    assert (results / "summary.txt").read_text() == "not run     refused\ndone        after\n"
    assert "seq_len: 0" in cluster.output(job)


def test_scancel(cluster, results, tmp_path):
    files = write(tmp_path, spec("long", 10**7), spec("after"))
    job = cluster.sbatch("--ntasks-per-node=2", SLURM / "gpt2d-one.sbatch", *files)
    trains(cluster, job, 1)
    cluster.call("scancel", str(job))
    assert cluster.end(job)["JobState"] == "CANCELLED"
    interrupted(results / "long.incomplete")
    assert not (results / "after").exists()


def trains(cluster, job, run):
    """That run of a job on n1 has finished steps."""
    def steps():
        socket = cluster.local / f"gpt2d-{job}.batch.0" / "gpt2d.sock"
        said = cluster.hosts[0].run([BUILD / "ctl" / "gpt2ctl", "--socket", socket, "metrics"]).stdout
        figures = dict(re.findall(r"^gpt2d_run_(id|step)\{.*\} (\d+)$", said, re.M))
        return figures.get("id") == str(run) and int(figures.get("step", 0)) > 5
    wait_for(steps, f"steps of run {run}")


def interrupted(folder):
    found, = metrics(folder)
    assert found["gpt2d"]["status"] == "interrupted" and found["gpt2d"]["reason"].startswith("preempted: ")
    assert found["gpt2d"]["steps"]["attempted"] > 0 and not list(folder.rglob("RUN_COMPLETE.txt"))


def test_a_signal_of_the_script_alone(cluster, results, tmp_path):
    """scancel --batch: no other process of the job gets the signal."""
    files = write(tmp_path, spec("long", 10**7), spec("after"))
    job = cluster.sbatch(SLURM / "gpt2d-one.sbatch", *files)
    trains(cluster, job, 1)
    cluster.call("scancel", "--batch", "--signal=TERM", str(job))
    assert cluster.end(job)["JobState"] == "FAILED"
    interrupted(results / "long.incomplete")
    assert not (results / "after").exists()


@pytest.mark.parametrize("options", [("--batch", "--signal=USR1"), ()], ids=["time limit", "scancel"])
def test_a_signal_while_results_are_copied(cluster, results, tmp_path, options):
    """The run is done: it is not trained again."""
    programs, copying, go = tmp_path / "bin", tmp_path / "copying", tmp_path / "go"
    programs.mkdir()
    (programs / "gpt2d").symlink_to(BUILD / "daemon" / "gpt2d")
    (programs / "gpt2ctl").write_text(f"""#!/bin/bash
if [ "$1" = artifacts ]; then
    touch {copying}
    until [ -e {go} ]; do sleep 0.1; done
fi
exec {BUILD}/ctl/gpt2ctl "$@"
""")
    (programs / "gpt2ctl").chmod(0o755)
    files = write(tmp_path, experiment("trained", repetitions=1), spec("after"))
    job = cluster.sbatch(SLURM / "gpt2d-one.sbatch", *files, GPT2D_BIN=str(programs))
    wait_for(copying.exists, "a copy that has begun")
    cluster.call("scancel", *options, str(job))
    if options:
        cluster.await_output(job, "signal USR1")
        go.touch()
    cluster.end(job)
    assert (results / "summary.txt").read_text() == "done        trained\nnot run     after\n"
    assert len(metrics(results / "trained")) == 4
    if options:
        assert "verdict" in (results / "trained" / "compare.txt").read_text()
    assert not (results / "trained.incomplete").exists()


def test_time_limit(cluster, results, tmp_path):
    """slurmctld looks every 30 s: its signal comes within the first 30 s of the job, also while gpt2d starts."""
    job = cluster.sbatch("--time=1", "--signal=B:USR1@55", SLURM / "gpt2d-one.sbatch", *write(tmp_path, spec("long", 10**7)))
    assert cluster.end(job)["JobState"] == "FAILED"
    assert "signal USR1" in cluster.output(job)
    assert (results / "summary.txt").read_text() in ("incomplete  long\n", "not run     long\n")


def test_time_limit_while_gpt2d_starts(cluster, results, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "gpt2d").write_text("""#!/bin/bash
# as if the first signal came before gpt2d takes signals
trap 'trap "exit 1" USR1' USR1
echo starts
while true; do sleep 0.1; done
""")
    (programs / "gpt2d").chmod(0o755)
    (programs / "gpt2ctl").symlink_to(BUILD / "ctl" / "gpt2ctl")
    job = cluster.sbatch(SLURM / "gpt2d-one.sbatch", *write(tmp_path, spec("late")), GPT2D_BIN=str(programs), GPT2D_REQUEUE="1")
    wait_for(lambda: any(file.stat().st_size for file in results.glob("log/*.out")), "a gpt2d that starts")
    cluster.call("scancel", "--batch", "--signal=USR1", str(job))
    cluster.await_output(job, "the job is queued again, restart 1 of 1")
    assert (results / "summary.txt").read_text() == "not run     late\n"


def test_requeue_at_the_time_limit(cluster, results, tmp_path):
    files = write(tmp_path, spec("short"), spec("long", 10**7), spec("last"))
    job = cluster.sbatch(SLURM / "gpt2d-one.sbatch", *files, GPT2D_REQUEUE="1")
    trains(cluster, job, 2)
    cluster.call("scancel", "--batch", "--signal=USR1", str(job))
    cluster.await_output(job, "the job is queued again, restart 1 of 1")
    interrupted(results / "long.incomplete")
    assert (results / "summary.txt").read_text() == "done        short\nincomplete  long\nnot run     last\n"
    wait_for(lambda: cluster.show(job)["JobState"] == "PENDING", "the job in the queue")
    first = (results / "short" / "RUN_COMPLETE.txt").read_text()
    write(tmp_path, spec("long"))
    # instead of after two minutes; slurmd refuses a job that starts in the second in which it ended
    cluster.call("scontrol", "update", f"JobId={job}", "StartTime=now+3")
    ended = cluster.end(job)
    assert ended["JobState"] == "COMPLETED" and ended["Restarts"] == "1", cluster.output(job)
    assert (results / "summary.txt").read_text() == "done        short\ndone        long\ndone        last\n"
    assert (results / "short" / "RUN_COMPLETE.txt").read_text() == first
    assert "short: has a result" in cluster.output(job)


def test_two_jobs_on_one_node(cluster, results, tmp_path):
    jobs = []
    for name in ("one", "two"):
        files = write(tmp_path, spec(name, 200))
        jobs.append(cluster.sbatch("--nodelist=n1", "--ntasks-per-node=2", SLURM / "gpt2d-one.sbatch", *files,
            RUN_DIR=str(tmp_path / f"results-{name}")))
    assert [cluster.end(job)["JobState"] for job in jobs] == ["COMPLETED", "COMPLETED"]
    for job, name in zip(jobs, ("one", "two")):
        found, = metrics(tmp_path / f"results-{name}")
        assert found["scheduler"]["job_id"] == str(job) and found["gpt2d"]["name"] == name


def test_knobs(cluster, results, tmp_path):
    files = write(tmp_path, spec("knobs", 50, data={"kind": "synthetic", "synthetic_tokens": 65536}))
    job = cluster.sbatch(SLURM / "gpt2d-one.sbatch", *files, NSYS="1", NCCL_LOGS="1", TORCHRUN_LOGS="1", DIST_DEBUG="1",
        MICRO_BATCH_SIZE_PER_GPU="2", GRAD_ACCUM_STEPS="2",
        GPT2_EXTRA_ARGS="--profile_mode --max_train_steps=8 --max_val_steps 0 --fp16")
    assert cluster.end(job)["JobState"] == "COMPLETED", cluster.output(job)
    found, = metrics(results)
    assert found["training_config"]["micro_batch_size_per_gpu"] == 2 and found["training_config"]["grad_accum_steps"] == 2
    assert found["epochs"][0]["micro_steps"] == 8
    for line in ("NSYS is ignored: ", "NCCL_LOGS: ", "TORCHRUN_LOGS is ignored: ", "DIST_DEBUG: ", "--profile_mode is ignored: ",
            "GPT2_EXTRA_ARGS: --fp16 is ignored: "):
        assert len(re.findall(re.escape(line), cluster.output(job))) == 1, line


def test_a_job_continues_from_a_checkpoint(cluster, results, tmp_path):
    files = write(tmp_path, spec("saves", 10**7, checkpoint={"every_steps": 20}))
    job = cluster.sbatch(SLURM / "gpt2d-one.sbatch", *files)
    saved = results / "saves.checkpoints" / f"{job}.0" / "1-saves"
    wait_for(lambda: list(saved.glob("step-*/manifest.json")), "a checkpoint")
    cluster.call("scancel", str(job))
    cluster.end(job)
    step = max(int(path.parent.name.removeprefix("step-")) for path in saved.glob("step-*/manifest.json"))
    write(tmp_path, spec("saves", step + 5, checkpoint={"every_steps": 20}))
    job = cluster.sbatch(SLURM / "gpt2d-one.sbatch", *files)
    assert cluster.end(job)["JobState"] == "COMPLETED", cluster.output(job)
    found, = metrics(results / "saves")
    assert found["gpt2d"]["steps"]["attempted"] == 5
    assert f"saves: continues from {saved}/step-{step}" in cluster.output(job)


def test_programs_from_a_package(cluster, results, tmp_path):
    """The second way of slurm/README.md: each node unpacks a tar file and removes it."""
    meson = "/usr/bin/meson" if os.path.exists("/usr/bin/meson") else "meson"
    subprocess.run([meson, "install", "-C", BUILD, "--no-rebuild", "--quiet"], check=True, env={**os.environ, "DESTDIR": str(tmp_path / "stage")})
    prefix, = (path.parent.parent for path in (tmp_path / "stage").rglob("bin/gpt2d"))
    subprocess.run(["tar", "-C", prefix.parent, "-cf", tmp_path / "gpt2d.tar", prefix.name], check=True)
    job = cluster.sbatch("--ntasks-per-node=1", SLURM / "gpt2d.sbatch", *write(tmp_path, spec("packed")),
        GPT2D_PACKAGE=str(tmp_path / "gpt2d.tar"), PATH=os.environ["PATH"] + ":/usr/sbin")
    assert cluster.end(job)["JobState"] == "COMPLETED", cluster.output(job)
    assert "package/libexec/gpt2d/gpt2-engine-cpu" in (results / "log" / "n2.log").read_text()


def test_salloc(cluster, results, tmp_path):
    files = write(tmp_path, spec("allocated"))
    out = cluster.call("salloc", "--nodes=1", "--ntasks-per-node=2", SLURM / "salloc.sh", *files)
    assert "done        allocated" in out and metrics(results / "allocated")[0]["hardware"]["world_size"] == 2
    shell = "gpt2ctl submit --follow " + str(write(tmp_path, spec("by-hand"))[0])
    out = cluster.call("salloc", "--nodes=1", "--ntasks-per-node=2", SLURM / "salloc.sh", input=shell)
    assert "by-hand" in out and "done" in out
    out = cluster.call("salloc", "--nodes=2", SLURM / "salloc.sh", *write(tmp_path, spec("both")))
    assert "done        both" in out and metrics(results / "both")[0]["hardware"]["nodes"] == 2


@pytest.mark.parametrize("options", [("--gpus=4",), ("--gpus-per-task=1", "--ntasks-per-node=2")], ids=" ".join)
def test_salloc_with_gpus(cluster, results, tmp_path, options):
    cluster.call("salloc", "--nodes=2", *options, SLURM / "salloc.sh", *write(tmp_path, spec("gpus")), GPT2D_RANKS="2")
    launcher, = results.rglob("launcher_metadata.json")
    assert json.loads(launcher.read_text())["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_a_gpt2d_that_cannot_start(cluster, results, tmp_path):
    for script in ("gpt2d-one.sbatch", "gpt2d.sbatch"):
        job = cluster.sbatch(SLURM / script, *write(tmp_path, spec()), GPT2D_OPTIONS="--no-such-option")
        assert cluster.end(job)["JobState"] == "FAILED"
        assert "no-such-option" in cluster.output(job) and "a gpt2d has ended before it was ready" in cluster.output(job)


def test_a_gpt2d_that_is_killed(cluster, results, tmp_path):
    files = write(tmp_path, spec("long", 10**7))
    job = cluster.sbatch(SLURM / "gpt2d-one.sbatch", *files)
    trains(cluster, job, 1)
    host = next(host for host in cluster.hosts if host.running("gpt2d"))
    host.output(["pkill", "-KILL", "-x", "gpt2d"])
    assert cluster.end(job)["JobState"] == "FAILED"


def test_two_nodes(cluster, results, tmp_path):
    files = write(tmp_path, spec("first"), experiment("second", repetitions=1))
    job = cluster.sbatch("--ntasks-per-node=2", SLURM / "gpt2d.sbatch", *files)
    assert cluster.end(job)["JobState"] == "COMPLETED", cluster.output(job)
    assert (results / "summary.txt").read_text() == "done        first\ndone        second\n"
    found, = metrics(results / "first")
    assert found["hardware"]["world_size"] == 4 and found["scheduler"]["nodelist"] == "n[1-2]" and found["scheduler"]["nnodes"] == "2"
    launcher, = (results / "first").rglob("launcher_metadata.json")
    assert json.loads(launcher.read_text())["slurm"]["hosts"] == "n1\nn2"
    assert all((results / name).exists() for name in ("log/n1.log", "log/n2.log"))


def test_a_signal_of_all_processes(cluster, results, tmp_path):
    """scancel --full: the sruns get it too, and kill what they have started; its folders are removed all the same."""
    job = cluster.sbatch(SLURM / "gpt2d.sbatch", *write(tmp_path, spec("long", 10**7)))
    trains(cluster, job, 1)
    cluster.call("scancel", "--full", "--signal=TERM", str(job))
    assert cluster.end(job)["JobState"] == "FAILED"


def test_two_nodes_at_their_time_limit(cluster, results, tmp_path):
    """scancel sends the signals of a time limit: to every gpt2d at the same time."""
    files = write(tmp_path, spec("long", 10**7))
    job = cluster.sbatch(SLURM / "gpt2d.sbatch", *files)
    trains(cluster, job, 1)
    cluster.call("scancel", str(job))
    assert cluster.end(job)["JobState"] == "CANCELLED"
    interrupted(results / "long.incomplete")


def test_a_member_that_is_killed(cluster, results, tmp_path):
    files = write(tmp_path, spec("long", 10**7), spec("after"))
    job = cluster.sbatch(SLURM / "gpt2d.sbatch", *files)
    trains(cluster, job, 1)
    cluster.hosts[1].output(["pkill", "-KILL", "-x", "gpt2d"])
    assert cluster.end(job)["JobState"] == "FAILED"
    assert "a gpt2d has ended" in cluster.output(job) and not (results / "after").exists()


def test_readme(cluster, results, tmp_path):
    """The commands of slurm/README.md, word for word, in a tree that is built."""
    shutil.copytree(SLURM, tmp_path / "slurm")  # a copy: what is beside it counts
    for name, target in (("etc", ROOT / "etc"), ("build", BUILD)):
        (tmp_path / name).symlink_to(target)
    block = re.search(r"```sh\n(git clone .*?)```", (SLURM / "README.md").read_text(), re.S)[1].splitlines()
    assert block[2].startswith("meson setup build && ninja") and len(block) <= 10
    out = cluster.call("bash", "-e", "-c", f"cd {tmp_path}\n" + "\n".join(block[3:]), PATH=os.environ["PATH"] + ":/usr/sbin",
        GPT2_EXTRA_ARGS="--max_train_steps 12 --max_val_steps 0")
    assert "done        nano-buckets" in out and "verdict: " in out
