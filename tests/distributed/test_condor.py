"""A training in HTCondor: carried to a machine and back, saved on the way, or over several machines."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from fake_condor import Job, finish, htcondor2, run_dag, submit
from trainings import Data, Training, payload, run_stage

from eopipe.clusters.submit_files import quoted


def write(training: Training, *more: str) -> None:
    """`eopipe condor` with relative paths."""
    data = training.data
    moved = Data(Path("in put"), [str(Path("in put") / Path(name).relative_to(data.root)) for name in data.tiles])
    settings = ("--batch", "32", *training.settings, *more)
    arguments = [*moved.stores(), *moved.cut(), "--model", "out/model", *settings]
    assert run_stage("condor", *arguments) == 0


def saved(job: Job) -> None:
    """Wait until a training has a checkpoint in its sandbox."""
    deadline = time.monotonic() + 120
    while not list(job.sandbox.glob("out/.model.state/*/step-*")):
        assert job.process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.exhaustive
def test_a_training_that_loses_its_machine_goes_on_from_what_was_carried(
    training: Training, submit_folder: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    write(training)
    [job] = submit(submit_folder / "condor/train.sub", submit_folder, tmp_path / "pool")
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
    assert "event=resume " in (submit_folder / "condor/train.0.out").read_text()
    assert payload(submit_folder / "out/model") == undisturbed
    assert (submit_folder / "out/model.run.json").is_file()
    assert not list(submit_folder.glob("out/.model.state"))


@pytest.mark.exhaustive
def test_nodes_come_when_the_first_one_is_ready_and_one_that_stops_stays_in_the_queue(
    training: Training, submit_folder: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    write(training, "--processes", "1", "--nodes", "2")

    def stop_one(jobs: list[Job]) -> None:
        saved(jobs[1])
        os.kill(jobs[1].process.pid, signal.SIGTERM)

    assert run_dag(submit_folder / "condor/train.dag", submit_folder, tmp_path / "pool", stop_one) == 0
    assert payload(submit_folder / "out/model").keys() == undisturbed.keys()
    both = [(submit_folder / f"condor/{name}.0.out").read_text() for name in ("first", "others")]
    assert any("event=resume " in log for log in both)
    assert "event=group_joined" in both[1]


@pytest.mark.exhaustive
def test_submit_descriptions_ask_for_what_the_training_needs(training: Training, submit_folder: Path) -> None:
    of_gpus = ("--gpu", "--gpu-memory-mb", "40000", "--gpu-capability", "8.0")
    write(training, *of_gpus, "--image", "eopipe.sif", "--memory-mb", "7000", "--threads", "3")
    description = htcondor2.Submit((submit_folder / "condor/train.sub").read_text())
    requests = {
        "gpus_minimum_memory": "40000",
        "gpus_minimum_capability": "8.0",
        "request_cpus": "6",
        "request_gpus": "2",
        "request_memory": "7000MB",
        "container_image": "eopipe.sif",
    }
    assert {name: description.expand(name) for name in requests} == requests


@pytest.mark.exhaustive
def test_what_htcondor_cannot_carry_is_told(training: Training, capsys: pytest.CaptureFixture[str]) -> None:
    argv = training.command()[3:]
    assert run_stage("condor", *argv[1:]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: HTCondor transfers only files below the submit directory")
    assert "--nodes of two" in message


@pytest.mark.exhaustive
def test_condor_submit_dag_takes_the_dag(
    training: Training, submit_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(training, "--nodes", "3")
    dagman = tmp_path / "condor_dagman"
    dagman.write_text("#!/bin/sh\n")
    dagman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    dag_submit = htcondor2.Submit.from_dag("condor/train.dag", {"force": True})
    assert "-Dag condor/train.dag" in dag_submit.expand("arguments")
    assert htcondor2.Submit((submit_folder / "condor/others.sub").read_text()).getQArgs() == "2"


@pytest.mark.parametrize("arguments", [["a b", "it's", 'say "no"', "", "plain"], ["'", '"', "a,b;c"]])
def test_htcondor_reads_the_words_that_were_meant(arguments: list[str], tmp_path: Path) -> None:
    job = Job(htcondor2.Submit(f"arguments = {quoted(arguments)}"), tmp_path, tmp_path)
    assert job.arguments("arguments") == arguments


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 3), (75, 85), (143, 85)])
def test_the_job_says_again_only_for_what_was_saved(
    code: int, expected: int, submit_folder: Path, training: Training
) -> None:
    write(training)
    (submit_folder / "eopipe").write_text(f"#!/bin/sh\nexit {code}\n")
    assert script(submit_folder, EOPIPE_EVERY="0").wait(timeout=20) == expected


@pytest.mark.exhaustive
def test_the_job_stops_its_training_every_so_often_or_when_the_slot_is_wanted(
    submit_folder: Path, training: Training
) -> None:
    write(training)
    (submit_folder / "eopipe").write_text('#!/bin/sh\ntrap "exit 75" TERM\n: > started\nwhile :; do sleep 0.05; done\n')
    assert script(submit_folder, EOPIPE_EVERY="1").wait(timeout=20) == 85
    (submit_folder / "started").unlink()
    job = script(submit_folder, EOPIPE_EVERY="0")
    while not (submit_folder / "started").exists():
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=20) == 85


def script(submit_folder: Path, **environment: str) -> "subprocess.Popen[bytes]":
    (submit_folder / "eopipe").chmod(0o755)
    variables = {"PATH": f"{submit_folder}:{os.environ['PATH']}", "EOPIPE_STATE": str(submit_folder / "state")}
    return subprocess.Popen(
        [submit_folder / "condor/job.sh", "train"], cwd=submit_folder, env=os.environ | variables | environment
    )
