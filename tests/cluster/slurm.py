"""A temporary Slurm of several nodes on this machine: `python tests/cluster/slurm.py up|down`.

It needs root and the packages slurmctld, slurmd, slurm-client and munge; accounting needs slurmdbd and
mariadb-server too. Nothing of it listens beyond loopback and a bridge of its own.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import accounting
import namespaces
from daemons import ClusterError, end, is_alive, number, sh, wait
from slurm_conf import GPUS, ClusterLayout, gres_conf, slurm_conf

ROOT = Path(tempfile.gettempdir()) / "eopipe-slurm"
# Programs inside of a job look here: Snakemake's Slurm plugin drops SLURM_CONF.
ETC = Path("/etc/slurm")
CONFS = ("slurm.conf", "gres.conf", "cgroup.conf")
NEEDED = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "nsenter", "unshare")
FOR_ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb-install-db")


def missing_requirement(*programs: str) -> str | None:
    """The reason why no cluster can run here, as one sentence; None if it can."""
    if os.geteuid():
        return "a Slurm of several nodes on one machine needs root"
    missing = [name for name in (*NEEDED, *programs) if not shutil.which(name)]
    if missing:
        return f"{', '.join(missing)} is not installed; `make test-packages` installs it on Debian"
    conf = ETC / "slurm.conf"
    if conf.exists() and not (conf.is_symlink() and conf.readlink().is_relative_to(ROOT)):
        return f"{conf} belongs to another Slurm"
    return None


@dataclass(frozen=True)
class Cluster:
    """Nodes node1, node2, … with 8 CPUs, 8 GB and 2 counted GPUs each; partitions debug, gpu and low (pre-emptible)."""

    nodes: int = 4
    accounting: bool = False
    root: Path = ROOT

    @property
    def layout(self) -> ClusterLayout:
        """Names and addresses; all of loopback where namespaces are forbidden."""
        node_addresses = [namespaces.address(node) for node in range(1, self.nodes + 1)]
        separate = self._separate.exists()
        controller = f"{namespaces.SUBNET}.1" if separate else "127.0.0.1"
        addresses = tuple(node_addresses) if separate else ("127.0.0.1",) * self.nodes
        host = socket.gethostname().partition(".")[0]
        return ClusterLayout(self.root, host, controller, addresses, 17000, self.accounting, separate)

    @property
    def _separate(self) -> Path:
        return self.root / "etc" / "hosts"

    @property
    def small(self) -> Path:
        """A folder of four megabytes that all nodes share."""
        return self.root / "small"

    @property
    def sealed(self) -> Path:
        """A folder that nobody can write to."""
        return self.root / "sealed"

    def _private(self, node: int) -> Path:
        """What a node has as /var/tmp."""
        folder = self.root / "spool" / f"var-tmp-{node}"
        folder.mkdir(exist_ok=True)
        return folder

    def start(self, owner: int = 0) -> None:
        """Start all daemons; raises ClusterError where a cluster of somebody else is up.

        It ends with its owner (a process); without one it stays up.
        """
        if number(self.root / "run" / "slurmctld.pid") and (self._owner() == 0 or is_alive(self._owner())):
            raise ClusterError("a cluster is up already; `make slurm-down` stops it")
        self.stop()
        try:
            self._start(owner)
        except ClusterError:
            self.stop()
            raise

    def _start(self, owner: int) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        for name in ("etc", "munge", "state", "spool", "log", "run", "fake", "small", "sealed"):
            (self.root / name).mkdir(parents=True)
        sh("mount", "-t", "tmpfs", "-o", "size=4m", "none", self.small)
        sh("mount", "-t", "tmpfs", "-o", "ro", "none", self.sealed)
        (self.root / "run" / "owner").write_text(str(owner))
        if namespaces.possible():
            namespaces.up(self.nodes, self.layout.host, self._separate)
        self._configure()
        self._munge()
        if self.accounting:
            accounting.start(self.layout)
        self.start_controller()
        for node in range(1, self.nodes + 1):
            self.start_node(node)
        wait(30, lambda: len(self.idle()) == self.nodes, "nodes idle")

    def stop(self) -> None:
        """Stop everything that runs, the jobs too."""
        run = self.root / "run"
        if number(run / "slurmctld.pid"):
            states = "--state=RUNNING,PENDING,SUSPENDED"
            subprocess.run(["scancel", "-u", "root", states], capture_output=True, timeout=20, check=False)
        end([*run.glob("slurmd.*.pid"), run / "slurmctld.pid"])
        for file in accounting.files(self.root):
            end([file])
        end([self.root / "munge" / "munged.pid"])
        namespaces.down(self.nodes)
        for folder in (self.small, self.sealed):
            subprocess.run(["umount", "-l", folder], capture_output=True, check=False)
        for name in CONFS:
            if (ETC / name).is_symlink() and (ETC / name).readlink().is_relative_to(self.root):
                (ETC / name).unlink()

    def start_controller(self) -> None:
        """Start slurmctld, with what it knew before."""
        sh("slurmctld")
        wait(30, lambda: "UP" in _quiet("scontrol", "ping"), "slurmctld")

    def freeze_controller(self) -> None:
        """Suspend slurmctld: requests get no answer."""
        os.kill(number(self.root / "run" / "slurmctld.pid") or 0, signal.SIGSTOP)

    def kill_controller(self) -> None:
        """Kill slurmctld as a crash does; jobs keep running."""
        end([self.root / "run" / "slurmctld.pid"], signal.SIGKILL)

    def start_node(self, node: int) -> None:
        """Start slurmd of a node."""
        before = namespaces.inside(node, self._separate, self._private(node)) if self.layout.separate else []
        subprocess.Popen([*before, "slurmd", "-N", f"node{node}", "-s"], stdin=subprocess.DEVNULL).wait()

    def kill_node(self, node: int) -> None:
        """End a node as a power cut does."""
        if self.layout.separate:
            namespaces.kill(node)
        else:
            end([self.root / "run" / f"slurmd.node{node}.pid"], signal.SIGKILL)

    def idle(self) -> list[str]:
        """The idle nodes."""
        return _quiet("sinfo", "--noheader", "--Node", "--partition=debug", "--states=idle", "--format=%N").split()

    def _owner(self) -> int:
        file = self.root / "run" / "owner"
        return int(file.read_text()) if file.exists() else 0

    def _configure(self) -> None:
        etc, layout = self.root / "etc", self.layout
        (etc / "slurm.conf").write_text(slurm_conf(layout))
        (etc / "gres.conf").write_text(gres_conf(layout))
        (etc / "cgroup.conf").write_text("CgroupAutomount=no\n")
        for gpu in range(GPUS):
            # Null devices represent GPUs.
            os.mknod(self.root / "fake" / f"gpu{gpu}", 0o020666, os.makedev(1, 3))
        ETC.mkdir(exist_ok=True)
        for name in CONFS:
            (ETC / name).unlink(missing_ok=True)
            (ETC / name).symlink_to(etc / name)

    def _munge(self) -> None:
        home = self.root / "munge"
        home.chmod(0o711)
        (home / "key").write_bytes(os.urandom(1024))
        (home / "key").chmod(0o400)
        files = {"key-file": "key", "socket": "munge.socket", "pid-file": "munged.pid", "log-file": "munged.log"}
        options = [f"--{option}={home / name}" for option, name in (files | {"seed-file": "seed"}).items()]
        sh("munged", "--force", *options, "--num-threads=2")


def _quiet(*command: str) -> str:
    try:
        return sh(*command)
    except (ClusterError, subprocess.TimeoutExpired):
        return ""


def main(action: str) -> int:
    """Start or stop a cluster from the command line."""
    if reason := missing_requirement():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    cluster = Cluster()
    if action == "down":
        cluster.stop()
        return 0
    try:
        cluster.start()
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(sh("sinfo"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
