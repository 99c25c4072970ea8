"""One run of the sample by each engine, and a Slurm for the engine that needs it."""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import platforms
import pytest

RunBy = Callable[[platforms.Engine], platforms.Run]


@pytest.fixture(scope="session")
def slurm() -> Iterator[None]:
    """The temporary cluster of the other tests; only one can exist at a time."""
    sys.path.append(str(Path(__file__).parents[1] / "cluster"))
    from slurm import Cluster, missing_requirement

    if reason := missing_requirement():
        pytest.skip(reason)
    cluster = Cluster()
    cluster.start(os.getpid())
    yield
    cluster.stop()


@pytest.fixture(scope="session")
def by(tmp_path_factory: pytest.TempPathFactory) -> RunBy:
    """The run of an engine, started when it is first needed; an engine that can resume is killed during training."""
    runs: dict[str, platforms.Run] = {}

    def run_by(engine: platforms.Engine) -> platforms.Run:
        if engine.name not in runs:
            folder = tmp_path_factory.mktemp("engine")
            if engine.resume and not platforms.TIMED:
                engine.kill_during_training(folder)
                engine = replace(engine, command=engine.resume)
            runs[engine.name] = engine.run(folder)
        return runs[engine.name]

    return run_by
