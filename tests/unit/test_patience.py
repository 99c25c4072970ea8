"""A Slurm that does not answer is asked again; nothing is concluded from its silence."""

import asyncio
import logging

import pytest
import snakemake_executor_plugin_slurm as plugin

from eopipe.clusters import executor_patches as patience
from eopipe.clusters.executor_patches import Status, be_patient, patient, remembering


def test_a_question_is_repeated_until_it_is_answered_and_the_silence_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(patience, "AGAIN_S", 0.0)
    answers: list[Status] = [(None, None), (None, None), ({"7": "RUNNING"}, 0.1)]

    async def ask(_command: str, _logger: logging.Logger) -> Status:
        return answers.pop(0)

    assert asyncio.run(patient(ask)("squeue", logging.getLogger())) == ({"7": "RUNNING"}, 0.1)
    assert len(caplog.records) == 1


def test_no_answer_is_an_answer_too() -> None:
    async def ask(_command: str, _logger: logging.Logger) -> Status:
        return {}, 0.1

    assert asyncio.run(patient(ask)("squeue", logging.getLogger())) == ({}, 0.1)


def test_what_was_known_is_known_while_there_is_no_answer() -> None:
    answers = [None, 600, None, 300]
    ask = remembering(lambda: answers.pop(0))
    assert [ask() for _ in range(4)] == [None, 600, 600, 300]


def test_the_executor_asks_through_what_is_put_in_its_place_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("query_job_status", "get_min_job_age"):
        monkeypatch.setattr(plugin, name, getattr(plugin, name))
    be_patient()
    first = plugin.query_job_status
    be_patient()
    assert plugin.query_job_status is first
    assert first.__module__ == patience.__name__ == plugin.get_min_job_age.__module__
