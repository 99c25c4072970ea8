"""A pool of HTCondor without its daemons, which cannot be installed here.

Submit descriptions, their arguments and expressions are read by HTCondor's own parsers (htcondor2, classad2); what the
schedd, the starter and DAGMan do with them is simulated here as the manual describes it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path

import classad2
import htcondor2

# A replacement of condor_chirp; it does nothing for a job that may not call it.
CHIRP = '#!/bin/sh\n[ "$CONDOR_IO_PROXY" = 1 ] && echo "$@" > "{file}"\n'


@dataclass
class Job:
    """One job of a submit description: the folder it was submitted from, and the folder of its sandboxes (machine)."""

    description: htcondor2.Submit
    folder: Path
    machine: Path
    number: int = 0
    # Variables of the queue statement.
    item: dict[str, str] = field(default_factory=dict)
    starts: int = 0
    sandbox: Path = field(init=False)
    process: "subprocess.Popen[bytes]" = field(init=False)

    def __post_init__(self) -> None:
        for name, value in self.item.items():
            self.description[name] = value

    def __getitem__(self, name: str) -> str:
        text = self.description.get(name)
        return self.description.expand(name).replace("$(Process)", str(self.number)) if text else ""

    def _list(self, name: str) -> list[str]:
        return [word.strip() for word in self[name].split(",") if word.strip()]

    @property
    def transfers_files(self) -> bool:
        return self["should_transfer_files"] == "YES"

    @property
    def spool(self) -> Path:
        return self.machine / "spool"

    def arguments(self, name: str) -> list[str]:
        text = self[name].removeprefix('"').removesuffix('"').replace('""', '"')
        return list(classad2.ClassAd({"Text": text, "List": classad2.ExprTree("argsToList(Text)")}).eval("List"))

    def create_sandbox(self) -> None:
        """Create a sandbox on a machine, with the inputs and the saved checkpoint of the job."""
        self.sandbox = self.folder
        if self.transfers_files:
            self.sandbox = self.machine / f"sandbox-{self.starts}"
            self.sandbox.mkdir(parents=True)
            assert self["preserve_relative_paths"] == "true"
            _transfer(self._list("transfer_input_files"), self.folder, self.sandbox)
            if self.spool.exists():
                _transfer(self._list("transfer_checkpoint_files"), self.spool, self.sandbox)

    def start(self) -> None:
        executable = (self.folder / self["executable"]).resolve()
        if self.transfers_files:
            executable = Path(shutil.copy(executable, self.sandbox / "condor_exec.exe"))
        variables = dict(word.partition("=")[::2] for word in self.arguments("environment"))
        proxy = "1" if self["MY.WantIOProxy"] == "true" else ""
        inherited = {"PATH": f"{self.machine.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
        inherited |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        output = self.folder / self["output"]
        with output.open("ab") as log:
            self.process = subprocess.Popen(
                [str(executable), *self.arguments("arguments")],
                cwd=self.sandbox,
                env=inherited | variables | {"CONDOR_IO_PROXY": proxy},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1

    def ended(self, code: int) -> bool:
        """Do what the starter and the schedd do when a job ends; return whether it leaves the queue."""
        if self["checkpoint_exit_code"] == str(code):
            shutil.rmtree(self.spool, ignore_errors=True)
            _transfer(self._list("transfer_checkpoint_files"), self.sandbox, self.spool)
            return False
        leaves = self["on_exit_remove"] or "true"
        if not classad2.ClassAd({"ExitCode": code, "Leaves": classad2.ExprTree(leaves)}).eval("Leaves"):
            return False
        if self.transfers_files and (code == 0 or self["when_to_transfer_output"] != "ON_SUCCESS"):
            _transfer(self._list("transfer_output_files"), self.sandbox, self.folder)
        return True

    def lose(self) -> None:
        """Simulate the loss of the machine; the next one gets the files that HTCondor has fetched before."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.transfers_files:
            shutil.rmtree(self.sandbox)


def _transfer(names: list[str], source: Path, target: Path) -> None:
    for name in names:
        # A missing file in the list puts a job on hold.
        assert (source / name).exists(), f"on hold: there is no {name}"
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        else:
            shutil.copyfile(source / name, target / name)


def finish(jobs: list[Job], maximum_starts: int = 4) -> list[int]:
    """Restart jobs as HTCondor would until they end; return their exit codes."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + 400
    while len(codes) < len(jobs):
        for number, job in enumerate(jobs):
            code = job.process.poll()
            if number in codes or code is None:
                continue
            if job.ended(code):
                codes[number] = code
            else:
                assert job.starts < maximum_starts, (job.folder / job["output"]).read_text()
                job.start()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [codes[number] for number in range(len(jobs))]


def submit(file: Path, folder: Path, machine: Path) -> list[Job]:
    """The jobs that condor_submit would queue for a file."""
    text = file.read_text()
    description = htcondor2.Submit(text)
    queue = description.getQArgs() or "1"
    items = [{}] * int(queue) if queue.isdigit() else list(description.itemdata())
    return [
        Job(htcondor2.Submit(text), folder, machine / f"{file.stem}-{number}", number, item)
        for number, item in enumerate(items)
    ]


def run_dag(file: Path, folder: Path, machine: Path, meanwhile: Callable[[list[Job]], None] | None = None) -> int:
    """Run a DAG file with at most one provisioner as DAGMan would; return the exit code of its last node.

    A node that has parents starts when their jobs have ended.
    """
    lines = [line.split() for line in file.read_text().splitlines() if line and not line.startswith("#")]
    nodes = {fields[1]: fields[2] for fields in lines if fields[0] in ("JOB", "PROVISIONER")}
    assert {fields[0] for fields in lines} <= {"JOB", "PROVISIONER", "RETRY", "PARENT"}
    assert all(fields[1] in nodes for fields in lines)
    graph: dict[str, list[str]] = {name: [] for name in nodes}
    for fields in lines:
        if fields[0] == "PARENT":
            position = fields.index("CHILD")
            for child in fields[position + 1 :]:
                graph[child] += fields[1:position]
    machine.mkdir()
    chirped = machine / "chirped"
    chirp = machine / "condor_chirp"
    chirp.write_text(CHIRP.format(file=chirped))
    chirp.chmod(0o755)
    first = [fields[1] for fields in lines if fields[0] == "PROVISIONER"]
    jobs = {name: submit(folder / file, folder, machine) for name, file in nodes.items()}
    for name in sorted(TopologicalSorter(graph).static_order(), key=lambda name: name not in first):
        for parent in graph[name]:
            assert not any(finish(jobs.pop(parent, [])))
        for job in jobs[name]:
            job.create_sandbox()
            job.start()
        deadline = time.monotonic() + 120
        while name in first and not (chirped.exists() and chirped.read_text() == "set_job_attr ProvisionerState 2\n"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    all_jobs = [job for name in nodes for job in jobs.get(name, [])]
    if meanwhile:
        meanwhile(all_jobs)
    return finish(all_jobs)[-1]
