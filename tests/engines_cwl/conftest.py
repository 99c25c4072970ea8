"""The sample by each engine, once, and a Slurm for the one that wants it."""

import os
import sys
from collections.abc import Callable, Iterator
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
def went_on(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, platforms.Run]:
    """The folder in which cwltool was killed and started again with its cache, and what that made."""
    folder = tmp_path_factory.mktemp("killed")
    engine = platforms.cached(**platforms.BARE)
    engine.killed(folder)
    return folder, engine.run(folder)


@pytest.fixture(scope="session")
def by(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The run of an engine, which is made when it is first asked for."""
    runs: dict[str, platforms.Run] = {}

    def made(engine: platforms.Engine) -> platforms.Run:
        if engine.name not in runs:
            runs[engine.name] = engine.run(tmp_path_factory.mktemp("engine"))
        return runs[engine.name]

    return made
