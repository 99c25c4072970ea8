"""Snakemake looks at the queue every three seconds.

By itself it waits ten seconds longer after each look, to spare a controller that others need too; nobody else asks
the one of the tests, and a test would wait for a minute for a job that has long ended.
"""

import asyncio
from functools import wraps

LONGEST_S = 3
_sleep = asyncio.sleep


@wraps(_sleep)
async def _shortly(delay: float, result: object = None) -> object:
    return await _sleep(min(delay, LONGEST_S), result)


asyncio.sleep = _shortly  # type: ignore[assignment]
