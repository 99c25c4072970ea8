"""A project on the temporary cluster: its training runs on nodes of Slurm."""

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from patience import PATIENCE
from projects import DAYS, ROOT, Project, cold_environment

MODEL = "results/model/manifest.json"
# Small enough for a minute, large enough to be hit in the middle.
TRAIN = {
    "architecture": "paced_models:Paced",
    "epochs": 5,
    "checkpoint_every": 3,
    "deterministic": True,
    "tell_every_s": 0.2,
}
# The file that slows the model of paced_models.py.
PACE = "EOPIPE_TEST_PACE"
RESUMED = r"\bevent=resume step=(\d+)"


@dataclass(frozen=True)
class Row:
    """The effect of a fault: Slurm's status, the last step before it, the first after it, and the time between."""

    fault: str
    status: str
    last_step: int
    resumed: int
    seconds: float

    @property
    def lost(self) -> int:
        """The number of repeated steps."""
        return max(0, self.last_step - self.resumed)


@dataclass(frozen=True)
class ClusterProject:
    """A project that has run up to the inputs of the training, with its own profile."""

    project: Project
    rows: list[Row] = field(default_factory=list)
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.project.folder

    @property
    def environment(self) -> dict[str, str]:
        """The environment with the Python path of the model, and its brake."""
        folder = str(Path(__file__).parent)
        paths = [folder, f"{folder}/impatient", *filter(None, [cold_environment().get("PYTHONPATH")])]
        return cold_environment() | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": ":".join(paths), PACE: str(self.brake)}

    @property
    def brake(self) -> Path:
        """While this file exists the training is slowed down."""
        return self.folder / "slowly"

    def configure(self, **train: object) -> None:
        """Change the section train of the config."""
        config = yaml.safe_load((self.folder / "config.yaml").read_text())
        config["train"] |= train
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config))

    def move_state(self, folder: Path) -> None:
        """Move the state folder, with a link at its old path."""
        config = yaml.safe_load((self.folder / "config.yaml").read_text())
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config | {"state": str(folder)}))
        folder.mkdir()
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        (self.folder / "state").symlink_to(folder)

    def profile(self, *options: str, train: dict[str, object] | None = None, **changes: object) -> None:
        """Write the site's profile with frequent queries of the queue and other changes; None removes a setting."""
        command = [sys.executable, "-m", "eopipe", "profile", "slurm", "--show", *options]
        result = subprocess.run(command, capture_output=True, text=True, check=True, env=cold_environment())
        profile = yaml.safe_load(result.stdout)
        quick = {"slurm-init-seconds-before-status-checks": 1, "latency-wait": 20, "retries": 2}
        profile = {k: v for k, v in (profile | quick | changes).items() if v is not None}
        profile["set-resources"]["train"] |= {"mem_mb": 1350} | (train or {})
        (self.folder / "slurm").mkdir(exist_ok=True)
        (self.folder / "slurm/config.yaml").write_text(yaml.safe_dump(profile))

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        """Start `snakemake --profile slurm`, the literal command."""
        return self._start("snakemake", "--profile", "slurm", *arguments, **variables)

    def run(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        """Start `eopipe run --profile slurm`."""
        return self._start("eopipe", "run", "--profile", "slurm", *arguments, **variables)

    def _start(self, module: str, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", module, *arguments]
        with (self.folder / "snakemake.log").open("a") as out:
            env = self.environment | variables
            self.processes.append(
                subprocess.Popen(command, cwd=self.folder, stdout=out, stderr=out, text=True, env=env)
            )
        return self.processes[-1]

    def kill_all(self) -> None:
        """Kill all processes that still use the cluster."""
        for process in self.processes:
            process.kill()
            process.wait()

    def end(self, process: "subprocess.Popen[str]", seconds: float = PATIENCE) -> int:
        """Wait for a process; its exit code. Fails if it hangs."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
            raise AssertionError(f"Snakemake hangs: {self.snakemake_log[-3000:]}") from None

    def refusal(self, code: int, **variables: str) -> str:
        """The last line of `eopipe run --profile slurm`, which ends with this code and submits nothing."""
        assert self.end(self.run("--", MODEL, **variables)) == code, self.snakemake_log
        assert "has been submitted" not in self.snakemake_log
        assert "Traceback" not in self.snakemake_log
        return self.snakemake_log.strip().splitlines()[-1]

    @property
    def snakemake_log(self) -> str:
        """The output of Snakemake so far."""
        return (self.folder / "snakemake.log").read_text()

    @property
    def jobs(self) -> list[str]:
        """The jobs of Slurm of the training, in their order."""
        return re.findall(r"has been submitted with SLURM jobid (\d+) \(log: [^)]*rule_train", self.snakemake_log)

    def wait_for(self, ready: Callable[[], object], event: str, seconds: float = PATIENCE) -> None:
        """Wait until a condition is true."""
        deadline = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < deadline, f"{event}: {self.snakemake_log[-3000:]}\n{self.log()[-3000:]}"
            time.sleep(0.1)

    def wait_for_checkpoint(self) -> None:
        """Wait until the newest job of the training has written a checkpoint."""
        tries = len(self.jobs)
        self.wait_for(lambda: len(self.jobs) >= max(1, tries), "submitted")
        before = self.checkpoint
        self.wait_for(lambda: self.checkpoint > before, "a new checkpoint")

    @property
    def checkpoint(self) -> int:
        """Step of the newest checkpoint."""
        return max((int(p.name[5:]) for p in self.folder.glob("state/train/*/step-*")), default=0)

    def inject_fault(
        self, fault: str, inject: Callable[[str], object], requeued: Callable[[], object] | None = None
    ) -> None:
        """Inject a fault into the training job; wait until the next job (or the requeued one) resumes; record it."""
        self.wait_for_checkpoint()
        job, tries, before = self.jobs[-1], len(self.jobs), self.log()
        inject(job)
        start, resumed = time.monotonic(), self._resumed(before)
        ready = requeued or (lambda: len(self.jobs) > tries)

        def has_resumed() -> bool:
            nonlocal before
            now = self.log()
            if now.startswith(before[:100]) and self._resumed(now) == resumed:
                before = now
            ready()
            return (self._resumed(now) or 0) > (resumed or 0)

        self.wait_for(has_resumed, fault)
        last_step = max(map(int, re.findall(r"\bevent=progress step=(\d+)", before, re.MULTILINE)), default=0)
        row = Row(fault, self.status(job), last_step, self._resumed(self.log()) or 0, time.monotonic() - start)
        self.rows.append(row)

    def status(self, job: str) -> str:
        """The status of a failed job that Snakemake printed."""
        return next(
            iter(re.findall(rf"SLURM-job '{job}' failed[^,]*, SLURM status is: '(\w+)'", self.snakemake_log)),
            "requeued",
        )

    def _resumed(self, log: str) -> int | None:
        match = re.search(RESUMED, log, re.MULTILINE)
        return int(match[1]) if match else None

    def weights(self) -> bytes:
        """The trained model."""
        return (self.folder / "results/model/model.safetensors").read_bytes()

    def log(self) -> str:
        """The log of the training."""
        file = self.folder / "results/logs/train.log"
        return file.read_text() if file.exists() else ""


def train_without_slurm(clustered: ClusterProject) -> bytes:
    """Weights of the same training by four processes of one machine, without Slurm."""
    clustered.configure(processes=4)
    command = [sys.executable, "-m", "snakemake", "--cores", "4", MODEL]
    env = clustered.environment
    result = subprocess.run(
        command, cwd=clustered.folder, capture_output=True, text=True, check=False, env=env, timeout=PATIENCE
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return clustered.weights()


def prepare(folder: Path) -> Project:
    """A project that has run up to its split on this machine; with a Snakefile as `eopipe init` writes it."""
    from eopipe.run.project import SNAKEFILE

    project = Project(folder)
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "sample").symlink_to(ROOT / "sample")
    project.write(train=TRAIN, search={"ids": [f"S2_ROMANIA_{day}" for day in DAYS[:2]]})
    result = project.run("--", "results/split.json")
    assert result.returncode == 0, result.stdout
    return project


def copy_project(project: Project, folder: Path) -> ClusterProject:
    """A fresh copy of a project."""
    shutil.copytree(project.folder, folder, symlinks=True)
    return ClusterProject(Project(folder))
