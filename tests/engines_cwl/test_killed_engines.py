"""An engine that is killed in the middle of its run and started again ends with the same bytes."""

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from platforms import CACHED, SNAKEMAKE, STREAMFLOW, TOIL, Engine, Run, toil

# What an engine tells when it begins to train.
TRAINS = {"cwltool": r"\[job train\]", "Toil": r"Issued job .*train\.cwl", "StreamFlow": r"EXECUTING.*/train"}


def killed(engine: Engine, folder: Path) -> None:
    """Begin, and end it with all that it started when it begins to train."""
    process = engine.start(folder)
    until = time.monotonic() + 300
    while not re.search(TRAINS[engine.name], (folder / "engine.log").read_text()):
        assert process.poll() is None, (folder / "engine.log").read_text()[-4000:]
        assert time.monotonic() < until
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


@pytest.mark.parametrize(
    ("engine", "again"),
    [
        (CACHED, None),
        (TOIL, lambda folder: toil(folder, "--restart")),
        (STREAMFLOW, None),
    ],
    ids=["cwltool", "Toil", "StreamFlow"],
)
def test_an_engine_that_was_killed_ends_with_the_same_bytes(
    by: Callable[[Engine], Run], engine: Engine, again: Callable[[Path], list[str]] | None, tmp_path: Path
) -> None:
    killed(engine, tmp_path)
    second = replace(engine, command=again) if again else engine
    assert second.run(tmp_path).digests == by(SNAKEMAKE).digests
