"""A real Slurm whose nodes are the hosts of nodes_hosts.py: slurmctld and munged on login, a slurmd on each node.

    with Cluster(2, tmp_path) as cluster:
        job = cluster.sbatch(script, words...)
        assert cluster.end(job)["JobState"] == "COMPLETED"
"""

import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import nodes_hosts
from helpers import PATIENCE_S, wait_for

PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol"]
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
CPUS = 4
GPUS = 2  # Slurm believes in this hardware
KILL_WAIT_S = 20

CONF = """
ClusterName=test
SlurmctldHost=login({login})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=0
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait={kill_wait}
MinJobAge=3600
JobRequeue=1
GresTypes=gpu
NodeName=n[1-{count}] CPUs={cpus} Gres=gpu:{gpus} RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
"""


def impossible():
    """Why there can be no cluster here; empty: there can."""
    missing = [program for program in PROGRAMS if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")]
    if missing:
        return f"no {', '.join(missing)}: packaging/setup slurm installs Slurm"
    try:
        with tempfile.TemporaryDirectory() as folder:
            make_device(Path(folder) / "gpu")
    except OSError as error:
        return f"no device files here: {error}"
    return nodes_hosts.impossible()


def make_device(path):
    """Slurm wants GPUs to be character devices: this one is as /dev/null."""
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))


class Cluster:
    def __init__(self, count, folder):
        self.folder = folder
        for name in ("munge", "state"):
            (folder / name).mkdir(parents=True)
        # the hosts share /tmp, but not this
        self.hosts = nodes_hosts.Hosts(count, folder / "net")
        self.local = self.hosts.local
        conf = folder / "slurm.conf"
        conf.write_text(CONF.format(folder=folder, login=self.hosts.switch.address, count=count, cpus=CPUS, gpus=GPUS, kill_wait=KILL_WAIT_S))
        for gpu in range(GPUS):
            make_device(folder / f"gpu{gpu}")
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n")
        self.environment = {**{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
            "SLURM_CONF": str(conf), "PATH": os.environ["PATH"] + ":/usr/sbin"}
        self.services = []
        try:
            self.start(count)
        except BaseException:
            self.close()
            raise

    def start(self, count):
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self.serve(self.hosts.switch, "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge/socket",
            f"--pid-file={self.folder}/munge/pid", f"--seed-file={self.folder}/munge/seed", f"--log-file={self.folder}/munge/log")
        wait_for((self.folder / "munge" / "socket").exists, "munged's socket")
        self.serve(self.hosts.switch, "slurmctld", "-D", "-c")
        for host in self.hosts:
            self.serve(host, "slurmd", "-D", "-N", host.name)
        wait_for(lambda: self.idle() == count, "idle nodes")

    def serve(self, host, *command):
        with open(self.folder / f"{command[0]}.{host.name}.out", "w", encoding="utf-8") as out:
            self.services.append(host.start(command, env=self.environment, stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL))

    def idle(self):
        """Nodes without a job and without one that is still ending."""
        listed = self.hosts.switch.run(["sinfo", "--noheader", "--Node", "--format=%N %t"], env=self.environment)
        return len({line for line in listed.stdout.splitlines() if line.endswith(" idle")})

    def call(self, *command, input=None, **environment):
        """The output of a command on the login host."""
        return self.hosts.switch.output(command, input=input, env={**self.environment, **environment})

    def sbatch(self, *words, **environment):
        """The ID of a job; its output is output(job)."""
        out = self.call("sbatch", "--parsable", f"--chdir={self.folder}", f"--output={self.folder}/job-%j.out", *words, **environment)
        return int(out)

    def output(self, job):
        file = self.folder / f"job-{job}.out"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def show(self, job):
        return dict(re.findall(r"(\S+?)=(\S*)", self.call("scontrol", "show", "job", str(job))))

    def await_output(self, job, words, patience=PATIENCE_S):
        wait_for(lambda: words in self.output(job), f"{words!r} in the output of job {job}", patience)

    def end(self, job, patience=2 * PATIENCE_S):
        """scontrol's output for a job that has ended and has no processes left."""
        wait_for(lambda: self.show(job)["JobState"] in ENDED, f"the end of job {job}", patience)
        wait_for(lambda: self.idle() == len(self.hosts), f"nodes that are idle after job {job}", patience)
        return self.show(job)

    def close(self):
        for host in self.hosts:
            for line in host.running("gpt2"):
                print(f"{host.name}: {line}")
        self.hosts.close()
        for service in self.services:
            service.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            for file in sorted([*self.folder.glob("job-*.out"), *self.folder.glob("*.log"), *self.folder.rglob("log/*")]):
                print(f"--- {file}", file.read_text(errors="replace")[-3000:], sep="\n")
        self.close()
