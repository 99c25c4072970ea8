"""Trainings on a real Slurm: through whatever ends their jobs, always the weights of an undisturbed one."""

import re
from concurrent.futures import Future

import pytest
from cluster_project import ClusterProject
from journeys import JOURNEYS

# Six trainings at the same time, most of whose processor time is of jobs, which no recorded second shows.
pytestmark = pytest.mark.exhaustive(by="journeys")
Journeys = dict[str, "Future[ClusterProject]"]


@pytest.mark.same_bytes
@pytest.mark.parametrize("name", JOURNEYS)
def test_whatever_ends_its_jobs_a_training_ends_with_the_weights_of_an_undisturbed_one(
    name: str, journeys: Journeys, undisturbed: bytes, report: list[str]
) -> None:
    training = journeys[name].result()
    report += [str(row) for row in training.rows]
    assert training.weights() == undisturbed
    resumed = [row.resumed for row in training.rows]
    assert resumed == sorted(set(resumed)), "each try made progress"


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("two nodes", {"warning before the limit, two nodes"}),
        ("one node", {"warning before the limit, one node"}),
        ("over its limit", {"over its walltime"}),
        ("pre-emptible", {"pre-empted, with grace", "pre-empted, without grace"}),
    ],
)
def test_a_job_that_is_warned_loses_no_step_though_its_checkpoint_takes_a_while(
    name: str, faults: set[str], journeys: Journeys
) -> None:
    rows = [row for row in journeys[name].result().rows if row.fault in faults]
    assert {row.fault: row.lost for row in rows} == dict.fromkeys(faults, 0)


def test_what_is_killed_loses_no_more_than_the_steps_since_its_checkpoint(journeys: Journeys) -> None:
    rows = {row.fault: row for row in journeys["two nodes"].result().rows}
    assert all(rows[fault].lost <= 6 for fault in ("an agent is killed", "a node dies"))


def test_two_processes_on_each_of_two_nodes_are_one_world_of_four(journeys: Journeys) -> None:
    assert "event=world size=4" in journeys["two nodes"].result().log()


def test_files_of_nodes_whose_clocks_are_ahead_make_nothing_run_again(journeys: Journeys) -> None:
    log = journeys["cancelled"].result().snakemake_log
    assert "results had modification times in the future" in log
    assert set(re.findall(r"^(?:local)?(?:rule|checkpoint) (\w+):", log, re.MULTILINE)) == {"train"}


def test_when_no_retries_are_left_one_sentence_says_why_and_how_to_go_on(journeys: Journeys) -> None:
    training = journeys["over its limit"].result()
    sentence = r"error: rule train: its job \d+ ran over its time limit each time; run the same command again to resume"
    assert len(re.findall(sentence, training.snakemake_log)) == 1
    assert len(training.jobs) == 3, "two that were too long, and that of the same command again"


def test_a_full_scratch_is_told_and_the_same_command_goes_on_when_there_is_room(journeys: Journeys) -> None:
    training = journeys["full scratch"].result()
    assert len(re.findall("^error: rule train: no space left while writing", training.snakemake_log, re.MULTILINE)) == 1
    assert "event=resume step=" in training.log()


def test_a_job_that_its_user_cancels_is_not_begun_again_and_a_new_run_goes_on(journeys: Journeys) -> None:
    training = journeys["cancelled"].result()
    assert f"job {training.jobs[0]} was cancelled, so this run does not start it again" in training.snakemake_log
    assert "event=resume step=" in training.log()
