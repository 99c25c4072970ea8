"""A pool of HTCondor without its daemons, which cannot be installed here.

Submit descriptions, their arguments and expressions are read by HTCondor's own parsers (htcondor2, classad2); what the
schedd, the starter and DAGMan do with them is played here as the manual says it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import classad2
import htcondor2

# Stands before condor_chirp's own words; a job without the right to call finds none.
CHIRP = '#!/bin/sh\n[ "$CONDOR_IO_PROXY" = 1 ] && echo "$@" > "{told}"\n'


@dataclass
class Job:
    """One job of a submit description: `folder` is where it was submitted, `machine` where its sandboxes lie."""

    description: htcondor2.Submit
    folder: Path
    machine: Path
    number: int = 0
    starts: int = 0
    sandbox: Path = field(init=False)
    process: "subprocess.Popen[bytes]" = field(init=False)

    def __getitem__(self, name: str) -> str:
        told = self.description.get(name)
        return self.description.expand(name).replace("$(Process)", str(self.number)) if told else ""

    def _list(self, name: str) -> list[str]:
        return [word.strip() for word in self[name].split(",") if word.strip()]

    @property
    def carried(self) -> bool:
        return self["should_transfer_files"] == "YES"

    @property
    def spool(self) -> Path:
        return self.machine / "spool"

    def words(self, name: str) -> list[str]:
        text = self[name].removeprefix('"').removesuffix('"').replace('""', '"')
        return list(classad2.ClassAd({"Told": text, "Words": classad2.ExprTree("argsToList(Told)")}).eval("Words"))

    def place(self) -> None:
        """Give the job a machine: a sandbox with what it reads and what was saved of it."""
        self.sandbox = self.folder
        if self.carried:
            self.sandbox = self.machine / f"sandbox-{self.starts}"
            self.sandbox.mkdir(parents=True)
            assert self["preserve_relative_paths"] == "true"
            _carry(self._list("transfer_input_files"), self.folder, self.sandbox)
            if self.spool.exists():
                _carry(self._list("transfer_checkpoint_files"), self.spool, self.sandbox)

    def start(self) -> None:
        executable = (self.folder / self["executable"]).resolve()
        if self.carried:
            executable = Path(shutil.copy(executable, self.sandbox / "condor_exec.exe"))
        own = dict(word.partition("=")[::2] for word in self.words("environment"))
        proxy = "1" if self["MY.WantIOProxy"] == "true" else ""
        given = {"PATH": f"{self.machine.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
        given |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        output = self.folder / self["output"]
        with output.open("ab") as told:
            self.process = subprocess.Popen(
                [str(executable), *self.words("arguments")],
                cwd=self.sandbox,
                env=given | own | {"CONDOR_IO_PROXY": proxy},
                stdout=told,
                stderr=told,
                start_new_session=True,
            )
        self.starts += 1

    def ended(self, code: int) -> bool:
        """What the starter and the schedd do when a job ends; whether it leaves the queue."""
        if self["checkpoint_exit_code"] == str(code):
            shutil.rmtree(self.spool, ignore_errors=True)
            _carry(self._list("transfer_checkpoint_files"), self.sandbox, self.spool)
            return False
        leaves = self["on_exit_remove"] or "true"
        if not classad2.ClassAd({"ExitCode": code, "Leaves": classad2.ExprTree(leaves)}).eval("Leaves"):
            return False
        if self.carried and (code == 0 or self["when_to_transfer_output"] != "ON_SUCCESS"):
            _carry(self._list("transfer_output_files"), self.sandbox, self.folder)
        return True

    def lose(self) -> None:
        """The machine dies; another one gets what HTCondor has fetched before."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.carried:
            shutil.rmtree(self.sandbox)


def _carry(names: list[str], source: Path, target: Path) -> None:
    for name in names:
        # A list with something that is not there puts a job on hold.
        assert (source / name).exists(), f"on hold: there is no {name}"
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        else:
            shutil.copyfile(source / name, target / name)


def finish(jobs: list[Job], at_most: int = 4) -> list[int]:
    """Start jobs as often as HTCondor would, up to their end; their exit codes."""
    codes: dict[int, int] = {}
    until = time.monotonic() + 400
    while len(codes) < len(jobs):
        for number, job in enumerate(jobs):
            code = job.process.poll()
            if number in codes or code is None:
                continue
            if job.ended(code):
                codes[number] = code
            else:
                assert job.starts < at_most, (job.folder / job["output"]).read_text()
                job.start()
        assert time.monotonic() < until
        time.sleep(0.05)
    return [codes[number] for number in range(len(jobs))]


def submit(file: Path, folder: Path, machine: Path) -> list[Job]:
    """What condor_submit makes of a file."""
    description = htcondor2.Submit(file.read_text())
    count = int(description.getQArgs() or 1)
    return [Job(description, folder, machine / f"{file.stem}-{number}", number) for number in range(count)]


def run_dag(file: Path, folder: Path, machine: Path, meanwhile: Callable[[list[Job]], None] | None = None) -> int:
    """What DAGMan makes of a file with a provisioner and one node, or with one node; the node's exit code."""
    lines = [line.split() for line in file.read_text().splitlines() if line and not line.startswith("#")]
    nodes = {words[1]: words[2] for words in lines if words[0] in ("JOB", "PROVISIONER")}
    assert {words[0] for words in lines} <= {"JOB", "PROVISIONER", "RETRY"}
    assert all(words[1] in nodes for words in lines)
    machine.mkdir()
    told = machine / "chirped"
    chirp = machine / "condor_chirp"
    chirp.write_text(CHIRP.format(told=told))
    chirp.chmod(0o755)
    first = [words[1] for words in lines if words[0] == "PROVISIONER"]
    jobs = {name: submit(folder / file, folder, machine) for name, file in nodes.items()}
    for name in sorted(nodes, key=lambda name: name not in first):
        for job in jobs[name]:
            job.place()
            job.start()
        until = time.monotonic() + 120
        while name in first and not (told.exists() and told.read_text() == "set_job_attr ProvisionerState 2\n"):
            assert time.monotonic() < until
            time.sleep(0.1)
    every = [job for name in nodes for job in jobs[name]]
    if meanwhile:
        meanwhile(every)
    return finish(every)[-1]
