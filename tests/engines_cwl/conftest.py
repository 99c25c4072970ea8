"""The sample by each engine, once, and a Slurm for the one that wants it."""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import platforms
import pytest

Made = Callable[[platforms.Engine], platforms.Run]


@pytest.fixture(scope="session")
def slurm() -> Iterator[None]:
    """The throwaway cluster of the other tests; there can be one at a time."""
    sys.path.append(str(Path(__file__).parents[1] / "cluster"))
    from slurm import Cluster, lacking

    if reason := lacking():
        pytest.skip(reason)
    cluster = Cluster()
    cluster.start(os.getpid())
    yield
    cluster.stop()


@pytest.fixture(scope="session")
def by(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """What an engine made, which begins when it is first asked for; if it can go on, it is killed in the middle."""
    runs: dict[str, platforms.Run] = {}

    def made(engine: platforms.Engine) -> platforms.Run:
        if engine.name not in runs:
            folder = tmp_path_factory.mktemp("engine")
            if engine.again and not platforms.TIMED:
                engine.killed(folder)
                engine = replace(engine, command=engine.again)
            runs[engine.name] = engine.run(folder)
        return runs[engine.name]

    return made
