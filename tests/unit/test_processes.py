"""A process that has ended, and that nobody has waited for, is dead for all that ask; models use freed memory again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eopipe.launch.lease import hold_lease, newest_token
from eopipe.processes import is_alive, keep_freed_memory, start_time
from eopipe.publish import host_id, publish

ENGINE = """
import subprocess, sys, time
from eopipe.launch.world import announce_engine
announce_engine()
stage = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(stage.pid, stage.stdout.readline(), flush=True)
time.sleep(60)
"""
# It asks only when its engine has ended, as one that is still starting meanwhile.
STAGE = """
import os, time
from eopipe.launch.world import die_with_engine
engine = os.getppid()
print(flush=True)
while os.getppid() == engine:
    time.sleep(0.01)
die_with_engine()
time.sleep(60)
"""
# Page faults of two threads that allocate, fill and free two arrays of 40 MB again and again, after a start.
FAULTS = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor

def count_faults(*_):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda number: len((b"x" * (40 << 20), b"y" * (40 << 20))), range(12)):
            pass
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    sys.exit()
"""
SET_UP = "from eopipe.contract import stage; from eopipe.cli import set_up_libraries; set_up_libraries(stage({!r}))"
# Reading its job is the first thing that a worker does.
WORKER = "from eopipe.training import worker; worker.read_job = count_faults; worker.main()"


@pytest.fixture
def zombie() -> Iterator[int]:
    """The number of a process that was killed and not waited for."""
    process = subprocess.Popen(["sleep", "60"])
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert Path("/proc", str(process.pid)).exists()
    yield process.pid
    process.wait()


def test_a_zombie_is_dead_and_its_parent_alive(zombie: int) -> None:
    assert not is_alive(zombie)
    assert start_time(zombie) == ""
    assert is_alive(os.getpid())
    assert int(start_time(os.getpid())) > 0


def test_a_lease_of_a_zombie_is_taken_over(tmp_path: Path) -> None:
    holding = "import sys, time; from pathlib import Path; from eopipe.launch.lease import hold_lease\n"
    holding += "with hold_lease(Path(sys.argv[1])): print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", holding, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with hold_lease(tmp_path):
            assert newest_token(tmp_path) == 2


def test_the_draft_of_a_zombie_is_swept(tmp_path: Path, zombie: int) -> None:
    draft_folder = tmp_path / f".a.json.tmp-{host_id()}-{zombie}-01234567"
    draft_folder.mkdir()
    with publish(tmp_path / "a.json") as draft:
        draft.write_text("{}")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_stage_that_starts_while_its_engine_is_a_zombie_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENGINE, STAGE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as engine:
        assert engine.stdout is not None
        stage = int(engine.stdout.readline())
        # Not waited for before the stage has asked, as under a process 1 that waits for nobody.
        engine.kill()
        deadline = time.monotonic() + 5
        while is_alive(stage) and time.monotonic() < deadline:
            time.sleep(0.02)
        lives_on = is_alive(stage)
        if lives_on:
            os.kill(stage, signal.SIGKILL)
    assert not lives_on


def faults(start: str) -> int:
    command = [sys.executable, "-c", f"{FAULTS}\n{start}\ncount_faults()", "job.json"]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def test_predict_calibrate_and_training_workers_allocate_without_page_faults_and_other_programs_as_before() -> None:
    usual = faults("import eopipe.processes, eopipe.training.worker")
    assert faults(SET_UP.format("preprocess")) > usual / 2
    for start in (SET_UP.format("predict"), SET_UP.format("calibrate"), WORKER):
        assert faults(start) < usual / 4, start


def test_a_c_library_without_mallopt_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    keep_freed_memory()
