"""A project on the throwaway cluster: its training goes over nodes of Slurm."""

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
from projects import DAYS, ROOT, Project, environment

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
RESUMED = r"^event=resume step=(\d+)"


@dataclass(frozen=True)
class Row:
    """What a fault did: what was seen, the last step told before it, that of the next try, and the time between."""

    fault: str
    seen: str
    told: int
    resumed: int
    seconds: float

    @property
    def lost(self) -> int:
        """Steps that were done twice."""
        return max(0, self.told - self.resumed)


@dataclass(frozen=True)
class Clustered:
    """A project whose inputs of the training are made, and a profile of its own."""

    project: Project
    rows: list[Row] = field(default_factory=list)
    begun: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.project.folder

    @property
    def environment(self) -> dict[str, str]:
        """Where the model is found, and its brake."""
        here = str(Path(__file__).parent)
        paths = [here, f"{here}/impatient", *filter(None, [environment().get("PYTHONPATH")])]
        return environment() | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": ":".join(paths), PACE: str(self.brake)}

    @property
    def brake(self) -> Path:
        """While this file is there the training takes its time."""
        return self.folder / "slowly"

    def configure(self, **train: object) -> None:
        """Change the section train of the config."""
        config = yaml.safe_load((self.folder / "config.yaml").read_text())
        config["train"] |= train
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config))

    def place_state(self, folder: Path) -> None:
        """Keep checkpoints somewhere else, under the old name too."""
        config = yaml.safe_load((self.folder / "config.yaml").read_text())
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config | {"state": str(folder)}))
        folder.mkdir()
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        (self.folder / "state").symlink_to(folder)

    def profile(self, *words: str, train: dict[str, object] | None = None, **changes: object) -> None:
        """Write the site's profile with quick looks at the queue and other changes; None takes a setting away."""
        command = [sys.executable, "-m", "eopipe", "profile", "slurm", "--show", *words]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
        made = yaml.safe_load(shown.stdout)
        quick = {"slurm-init-seconds-before-status-checks": 1, "latency-wait": 20, "retries": 2}
        made = {k: v for k, v in (made | quick | changes).items() if v is not None}
        made["set-resources"]["train"] |= {"mem_mb": 1350} | (train or {})
        (self.folder / "slurm").mkdir(exist_ok=True)
        (self.folder / "slurm/config.yaml").write_text(yaml.safe_dump(made))

    def start(self, *words: str, **more: str) -> "subprocess.Popen[str]":
        """Begin `snakemake --profile slurm`, the literal command."""
        return self._start("snakemake", "--profile", "slurm", *words, **more)

    def run(self, *words: str, **more: str) -> "subprocess.Popen[str]":
        """Begin `eopipe run --profile slurm`."""
        return self._start("eopipe", "run", "--profile", "slurm", *words, **more)

    def _start(self, module: str, *words: str, **more: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", module, *words]
        with (self.folder / "snakemake.log").open("a") as out:
            place = self.environment | more
            self.begun.append(subprocess.Popen(command, cwd=self.folder, stdout=out, stderr=out, text=True, env=place))
        return self.begun[-1]

    def leave(self) -> None:
        """Leave nothing behind that still asks the cluster."""
        for process in self.begun:
            process.kill()
            process.wait()

    def end(self, process: "subprocess.Popen[str]", seconds: float = 240) -> int:
        """Its exit code; it may not hang."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait(60)
            raise AssertionError(f"Snakemake hangs: {self.told[-3000:]}") from None

    def refusal(self, code: int, **more: str) -> str:
        """The last line of `eopipe run --profile slurm`, which ends with this code and submits nothing."""
        assert self.end(self.run("--", MODEL, **more), 120) == code, self.told
        assert "has been submitted" not in self.told
        assert "Traceback" not in self.told
        return self.told.strip().splitlines()[-1]

    @property
    def told(self) -> str:
        """What Snakemake said so far."""
        return (self.folder / "snakemake.log").read_text()

    @property
    def jobs(self) -> list[str]:
        """The jobs of Slurm of the training, in their order."""
        return re.findall(r"has been submitted with SLURM jobid (\d+) \(log: [^)]*rule_train", self.told)

    def wait_for(self, ready: Callable[[], object], what: str, seconds: float = 300) -> None:
        """Wait until something is so."""
        until = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < until, f"{what}: {self.told[-3000:]}\n{self.log()[-3000:]}"
            time.sleep(0.1)

    def under_way(self) -> None:
        """Wait until the newest job of the training has made a checkpoint of its own."""
        tries = len(self.jobs)
        self.wait_for(lambda: len(self.jobs) >= max(1, tries), "submitted")
        before = self.checkpoint
        self.wait_for(lambda: self.checkpoint > before, "a new checkpoint")

    @property
    def checkpoint(self) -> int:
        """Step of the newest checkpoint."""
        return max((int(p.name[5:]) for p in self.folder.glob("state/train/*/step-*")), default=0)

    def strike(self, fault: str, how: Callable[[str], object], again: Callable[[], object] | None = None) -> None:
        """Do something to the job that trains; wait until the next one (or the same again) goes on, and note it."""
        self.under_way()
        job, tries, before = self.jobs[-1], len(self.jobs), self.log()
        how(job)
        began, resumed = time.monotonic(), self._resumed(before)
        ready = again or (lambda: len(self.jobs) > tries)

        def gone_on() -> bool:
            nonlocal before
            now = self.log()
            if now.startswith(before[:100]) and self._resumed(now) == resumed:
                before = now
            ready()
            return (self._resumed(now) or 0) > (resumed or 0)

        self.wait_for(gone_on, fault, 300)
        told = max(map(int, re.findall(r"^event=progress step=(\d+)", before, re.MULTILINE)), default=0)
        row = Row(fault, self.seen(job), told, self._resumed(self.log()) or 0, time.monotonic() - began)
        self.rows.append(row)

    def seen(self, job: str) -> str:
        """What Snakemake told of the end of a job."""
        return next(
            iter(re.findall(rf"SLURM-job '{job}' failed[^,]*, SLURM status is: '(\w+)'", self.told)), "requeued"
        )

    def _resumed(self, log: str) -> int | None:
        found = re.search(RESUMED, log, re.MULTILINE)
        return int(found[1]) if found else None

    def weights(self) -> bytes:
        """The trained model."""
        return (self.folder / "results/model/model.safetensors").read_bytes()

    def log(self) -> str:
        """What the training said last."""
        file = self.folder / "results/logs/train.log"
        return file.read_text() if file.exists() else ""


def alone(clustered: Clustered) -> bytes:
    """Weights of the same training by four processes of one machine, without Slurm."""
    clustered.configure(processes=4)
    command = [sys.executable, "-m", "snakemake", "--cores", "4", MODEL]
    place = clustered.environment
    done = subprocess.run(
        command, cwd=clustered.folder, capture_output=True, text=True, check=False, env=place, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return clustered.weights()


def prepare(folder: Path) -> Project:
    """A project that is made up to its split, by this machine; with a Snakefile as `eopipe init` writes it."""
    from eopipe.run.project import SNAKEFILE

    project = Project(folder)
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "sample").symlink_to(ROOT / "sample")
    project.write(train=TRAIN, search={"ids": [f"S2_ROMANIA_{day}" for day in DAYS[:2]]})
    done = project.run("--", "results/split.json")
    assert done.returncode == 0, done.stdout
    return project


def copied(project: Project, folder: Path) -> Clustered:
    """A fresh copy of a project."""
    shutil.copytree(project.folder, folder, symlinks=True)
    return Clustered(Project(folder))
