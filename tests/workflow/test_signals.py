"""Signals to `eopipe run` and its processes: nothing lives on, and the lock of a run covers all of them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from chaos.processes import TAG, Process, Tag
from projects import ROOT

from eopipe.run.job_records import has_locks
from eopipe.run.project import LOCK

pytestmark = pytest.mark.launch
EOPIPE = str(Path(sys.executable).with_name("eopipe"))
CONFIG = {
    "search": {"collections": ["s2"], "bbox": [25.0, 45.0, 25.1, 45.1], "datetime": "2018", "assets": ["red", "scl"]},
    "preprocess": {"bands": ["red"]},
    "label": {"source": "labels.tif", "classes": ["a", "b"]},
}


@dataclass
class Waiting:
    """A run whose search waits for an answer."""

    folder: Path
    run: "subprocess.Popen[str]"
    tag: Tag

    def process(self, kind: str) -> Process:
        (match,) = (process for process in self.tag.alive() if process.kind == kind)
        return match

    def ended(self) -> tuple[int, str]:
        output, _ = self.run.communicate(timeout=60)
        return self.run.returncode, output


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    with search_that_waits(tmp_path, EOPIPE, "run", "--configfile", "config.yaml", "--cores", "1") as run:
        yield run


@pytest.fixture
def waiting_cwltool(tmp_path: Path) -> Iterator[Waiting]:
    program = str(Path(EOPIPE).with_name("cwltool"))
    options = ("--preserve-environment", TAG, "--outdir", "out")
    with search_that_waits(tmp_path, program, *options, str(ROOT / "cwl/search.cwl"), "search.yml") as run:
        yield run


@contextmanager
def search_that_waits(folder: Path, *command: str) -> Iterator[Waiting]:
    """The command, once its search has asked a server that never answers."""
    (folder / "labels.tif").touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        search = CONFIG["search"] | {"url": f"http://127.0.0.1:{server.getsockname()[1]}"}
        (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG | {"search": search}))
        (folder / "search.yml").write_text(yaml.safe_dump(search))
        run = Waiting(folder, start(folder, tag := Tag(), *command), tag)
        server.settimeout(1)
        try:
            with connection_of(server, run):
                yield run
        finally:
            tag.end()
            run.run.communicate()


def connection_of(server: socket.socket, run: Waiting) -> socket.socket:
    """The connection of its search."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(TimeoutError):
            return server.accept()[0]
        assert run.run.poll() is None, run.run.communicate()[0]
    raise AssertionError("the search asks nothing")


def start(folder: Path, tag: Tag, *command: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        cwd=folder,
        env=tag.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGHUP, marks=pytest.mark.exhaustive),
    ],
    ids=lambda number: number.name,
)
def test_a_signal_to_the_command_alone_ends_its_jobs_first_and_the_lock_is_free(
    waiting: Waiting, number: signal.Signals
) -> None:
    waiting.run.send_signal(number)
    code, output = waiting.ended()
    assert code == 128 + number, output
    assert f"{number.name}: waiting until the running jobs have ended" in output
    assert waiting.tag.alive() == []
    assert (waiting.folder / LOCK).read_text() == ""


@pytest.mark.exhaustive
def test_a_signal_that_reaches_snakemake_again_and_again_ends_it_once(waiting: Waiting) -> None:
    snakemake = waiting.process("snakemake")
    for _ in range(20):
        snakemake.send(signal.SIGTERM)
        time.sleep(0.002)
    waiting.run.send_signal(signal.SIGTERM)
    code, output = waiting.ended()
    assert code == 128 + signal.SIGTERM, output
    assert waiting.tag.alive() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["run", "snakemake"])
def test_a_parent_that_is_killed_takes_its_children_with_it_within_five_seconds(waiting: Waiting, kind: str) -> None:
    waiting.process(kind).send(signal.SIGKILL)
    assert waiting.tag.await_end(5) == []
    code, output = waiting.ended()
    assert code == {"run": -signal.SIGKILL, "snakemake": 137}[kind]
    assert ("Snakemake was ended by SIGKILL; run the same command again to resume" in output) == (kind == "snakemake")


def test_a_cwltool_that_is_killed_takes_its_stage_with_it_within_five_seconds(waiting_cwltool: Waiting) -> None:
    assert waiting_cwltool.process("stage")
    waiting_cwltool.run.kill()
    assert waiting_cwltool.tag.await_end(5) == []


def test_a_second_run_is_refused_as_long_as_the_workflow_of_the_first_lives(waiting: Waiting) -> None:
    # A stopped process cannot end, so that of the killed command lives on.
    snakemake = waiting.process("snakemake")
    assert has_locks(waiting.folder)
    os.kill(waiting.run.pid, signal.SIGSTOP)
    second = start(
        waiting.folder, waiting.tag, EOPIPE, "run", "--configfile", "config.yaml", "--cores", "1", "--dry-run"
    )
    output, _ = second.communicate(timeout=60)
    assert second.returncode == 2
    assert f"a run is active in this folder: process {waiting.run.pid} on {socket.gethostname()} since" in output
    assert has_locks(waiting.folder)
    assert snakemake in waiting.tag.alive()


def test_the_lock_of_a_run_is_held_by_its_snakemake_too(waiting: Waiting) -> None:
    inode = (waiting.folder / LOCK).stat().st_ino
    descriptors = Path("/proc", str(waiting.process("snakemake").pid), "fd")
    assert inode in {path.stat().st_ino for path in descriptors.iterdir() if path.exists()}
    stage = Path("/proc", str(waiting.process("stage").pid), "fd")
    assert inode not in {path.stat().st_ino for path in stage.iterdir() if path.exists()}


def test_eopipe_run_is_refused_while_a_plain_snakemake_works_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(
        "from eopipe.run.project import hold_lock\n\n"
        "onstart:\n    hold_lock()\n\n"
        "rule all:\n    output: 'done'\n    shell: 'touch begun; sleep 60; touch done'\n"
    )
    tag = Tag()
    first = subprocess.Popen(
        [sys.executable, "-m", "snakemake", "--cores", "1", "--quiet", "all"], cwd=tmp_path, env=tag.environment()
    )
    try:
        deadline = time.monotonic() + 90
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        done = subprocess.run([EOPIPE, "run"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert f"a run is active in this folder: process {first.pid} on" in done.stderr
    finally:
        tag.end()
        first.wait()
