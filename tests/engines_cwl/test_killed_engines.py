"""An engine that is killed in the middle of its run and started again ends with the same bytes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from platforms import BARE, SNAKEMAKE, STREAMFLOW, TOIL, Engine, Run, streamflow, toil

Command = Callable[[Path], list[str]]


def test_cwltool_that_was_killed_goes_on_from_its_cache(by: Callable[[Engine], Run], went_on: tuple[Path, Run]) -> None:
    folder, run = went_on
    assert run.digests == by(SNAKEMAKE).digests
    second = (folder / "engine.log").read_text().rpartition(" Resolved ")[2]
    assert "[job search] Using cached output" in second
    assert "[job train] Using cached output" not in second


@pytest.mark.parametrize(
    ("engine", "first", "again"),
    [
        (TOIL, lambda folder: toil(folder, **BARE), lambda folder: toil(folder, "--restart", **BARE)),
        (STREAMFLOW, lambda folder: streamflow(folder, **BARE), lambda folder: streamflow(folder, **BARE)),
    ],
    ids=["Toil", "StreamFlow"],
)
def test_an_engine_that_was_killed_ends_with_the_same_bytes(
    by: Callable[[Engine], Run], engine: Engine, first: Command, again: Command, tmp_path: Path
) -> None:
    replace(engine, command=first).killed(tmp_path)
    assert replace(engine, command=again).run(tmp_path).digests == by(SNAKEMAKE).digests
