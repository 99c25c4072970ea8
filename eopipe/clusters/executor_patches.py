"""A Slurm that does not answer for a while must not stop a run that watches it."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

AGAIN_S = 10.0
Status = tuple[dict[str, str] | None, float | None]
PLUGIN = "snakemake_executor_plugin_slurm"


def be_patient() -> None:
    """Let Snakemake's executor ask until it is answered.

    By itself (2.8.0) it forgets its jobs after five questions in a row without an answer, and waits for ever for none;
    where it cannot learn how long jobs are remembered, it also turns to accounts that may not be kept.
    """
    plugin: Any = sys.modules.get(PLUGIN)
    if plugin and plugin.query_job_status.__module__ != __name__:
        plugin.query_job_status = patient(plugin.query_job_status)
        plugin.get_min_job_age = remembering(plugin.get_min_job_age)


def patient(ask: Callable[..., Awaitable[Status]]) -> Callable[..., Awaitable[Status]]:
    """The same question, repeated until there is an answer."""

    async def asked(command: str, logger: Any) -> Status:
        answer, silent = await ask(command, logger), False
        while answer[0] is None:
            if not silent:
                logger.warning("Slurm does not answer; jobs go on, and it is asked again until it does.")
            silent = True
            await asyncio.sleep(AGAIN_S)
            answer = await ask(command, logger)
        return answer

    return asked


def remembering(ask: Callable[[], int | None]) -> Callable[[], int | None]:
    """The newest answer that there was."""
    known: list[int] = []

    def asked() -> int | None:
        now = ask()
        known[:] = known if now is None else [now]
        return known[0] if known else None

    return asked
