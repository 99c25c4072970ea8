"""A training in HTCondor: carried to a machine and back, saved on the way, or over several machines."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from fake_condor import Job, finish, htcondor2, run_dag, submit
from trainings import Data, Training, payload, run_stage

from eopipe.clusters.htcondor import quoted


@pytest.fixture
def here(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to submit from, with the inputs of a training below it."""
    shutil.copytree(data.root, tmp_path / "here" / "in put")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def write(training: Training, *more: str) -> None:
    """`eopipe condor` with relative paths."""
    data = training.data
    moved = Data(Path("in put"), [str(Path("in put") / Path(name).relative_to(data.root)) for name in data.tiles])
    words = [*moved.stores(), *moved.cut(), "--model", "out/model", *training.settings, *more]
    assert run_stage("condor", *words) == 0


def saved(job: Job) -> None:
    """Wait until a training has a checkpoint in its sandbox."""
    until = time.monotonic() + 120
    while not list(job.sandbox.glob("out/.model.state/*/step-*")):
        assert job.process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_training_that_loses_its_machine_goes_on_from_what_was_carried(
    training: Training, here: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    write(training)
    [job] = submit(here / "condor/train.sub", here, tmp_path / "pool")
    job.create_sandbox()
    job.start()
    saved(job)
    os.kill(job.process.pid, signal.SIGTERM)
    assert job.process.wait(timeout=60) == 85
    assert not job.ended(85)
    job.start()
    job.lose()
    job.create_sandbox()
    job.start()
    assert finish([job]) == [0]
    assert "event=resume " in (here / "condor/train.0.out").read_text()
    assert payload(here / "out/model") == undisturbed
    assert (here / "out/model.run.json").is_file()
    assert not list(here.glob("out/.model.state"))


def test_nodes_come_when_the_first_one_is_ready_and_one_that_stops_stays_in_the_queue(
    training: Training, here: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    write(training, "--processes", "1", "--nodes", "2")

    def stop_one(jobs: list[Job]) -> None:
        saved(jobs[1])
        os.kill(jobs[1].process.pid, signal.SIGTERM)

    assert run_dag(here / "condor/train.dag", here, tmp_path / "pool", stop_one) == 0
    assert payload(here / "out/model").keys() == undisturbed.keys()
    both = [(here / f"condor/{name}.0.out").read_text() for name in ("first", "others")]
    assert any("event=resume " in told for told in both)
    assert "event=group-joined" in both[1]


def test_submit_descriptions_ask_for_what_the_training_needs(training: Training, here: Path) -> None:
    write(training, "--gpu", "--image", "eopipe.sif", "--memory-mb", "7000", "--threads", "3")
    told = htcondor2.Submit((here / "condor/train.sub").read_text())
    asked = {name: told.expand(name) for name in ("request_cpus", "request_gpus", "request_memory", "container_image")}
    assert asked == {
        "request_cpus": "6",
        "request_gpus": "2",
        "request_memory": "7000MB",
        "container_image": "eopipe.sif",
    }


def test_what_htcondor_cannot_carry_is_told(training: Training, capsys: pytest.CaptureFixture[str]) -> None:
    words = training.command()[3:]
    assert run_stage("condor", *words[1:]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: HTCondor transfers only what is below the folder that you submit from")
    assert "--nodes of two" in told


def test_condor_submit_dag_takes_the_dag(
    training: Training, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(training, "--nodes", "3")
    dagman = tmp_path / "condor_dagman"
    dagman.write_text("#!/bin/sh\n")
    dagman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = htcondor2.Submit.from_dag("condor/train.dag", {"force": True})
    assert "-Dag condor/train.dag" in made.expand("arguments")
    assert htcondor2.Submit((here / "condor/others.sub").read_text()).getQArgs() == "2"


@pytest.mark.parametrize("words", [["a b", "it's", 'say "no"', "", "plain"], ["'", '"', "a,b;c"]])
def test_htcondor_reads_the_words_that_were_meant(words: list[str], tmp_path: Path) -> None:
    job = Job(htcondor2.Submit(f"arguments = {quoted(words)}"), tmp_path, tmp_path)
    assert job.arguments("arguments") == words


@pytest.mark.parametrize(("code", "told"), [(0, 0), (3, 3), (75, 85), (143, 85)])
def test_the_job_says_again_only_for_what_was_saved(code: int, told: int, here: Path, training: Training) -> None:
    write(training)
    (here / "eopipe").write_text(f"#!/bin/sh\nexit {code}\n")
    assert script(here, EOPIPE_EVERY="0").wait(timeout=20) == told


def test_the_job_stops_its_training_every_so_often_or_when_the_slot_is_wanted(here: Path, training: Training) -> None:
    write(training)
    (here / "eopipe").write_text('#!/bin/sh\ntrap "exit 75" TERM\n: > started\nwhile :; do sleep 0.05; done\n')
    assert script(here, EOPIPE_EVERY="1").wait(timeout=20) == 85
    (here / "started").unlink()
    job = script(here, EOPIPE_EVERY="0")
    while not (here / "started").exists():
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=20) == 85


def script(here: Path, **environment: str) -> "subprocess.Popen[bytes]":
    (here / "eopipe").chmod(0o755)
    own = {"PATH": f"{here}:{os.environ['PATH']}", "EOPIPE_STATE": str(here / "state")}
    return subprocess.Popen([here / "condor/job.sh", "train"], cwd=here, env=os.environ | own | environment)
