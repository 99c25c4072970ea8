"""Four engines, one digest; the table of docs/cwl.md is what they did here."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest
from platforms import BARE, CWLTOOL, PAYLOAD, SNAKEMAKE, STREAMFLOW, TIMED, TOIL, TOIL_SLURM, Engine, Run, cwltool
from projects import ROOT

Made = Callable[[Engine], Run]
PAGE = ROOT / "docs/cwl.md"
ROWS = re.compile(r"(?<=<!-- engines -->\n).*?(?=<!-- /engines -->)", re.DOTALL)


@pytest.mark.parametrize("engine", [CWLTOOL, TOIL, STREAMFLOW], ids=lambda engine: engine.name)
def test_an_engine_that_was_killed_in_the_middle_and_goes_on_makes_the_bytes_of_snakemake(
    by: Made, engine: Engine
) -> None:
    assert by(engine).digests == by(SNAKEMAKE).digests


@pytest.mark.skipif(TIMED, reason="nothing is killed while times are taken")
def test_cwltool_goes_on_from_its_cache(by: Made) -> None:
    told = (by(CWLTOOL).folder / "engine.log").read_text().rpartition(" Resolved ")[2]
    assert "[job search] Using cached output" in told
    assert "[job train] Using cached output" not in told


@pytest.mark.usefixtures("slurm")
def test_toil_makes_the_same_bytes_through_the_jobs_of_slurm(by: Made) -> None:
    assert by(TOIL_SLURM).digests == by(SNAKEMAKE).digests


def table(runs: list[Run]) -> str:
    """A row for each engine; digests by their first twelve letters."""
    lines = [f"| engine | version | seconds | {' | '.join(PAYLOAD)} |", "|---|---|---|" + "---|" * len(PAYLOAD)]
    for run in runs:
        digests = " | ".join(f"`{run.digests[thing][:12]}`" for thing in PAYLOAD)
        lines.append(f"| {run.engine} | {run.version} | {run.seconds:.0f} | {digests} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_engines_is_of_these_engines_and_versions(by: Made) -> None:
    made = table([by(engine) for engine in (SNAKEMAKE, CWLTOOL, TOIL, STREAMFLOW)])
    if TIMED:
        PAGE.write_text(ROWS.sub(lambda _: made, PAGE.read_text()))
    kept = ROWS.search(PAGE.read_text())
    assert kept
    # Seconds are of one machine, and so may be the last bit of a weight.
    told, here = ([re.findall(r"[^|`]+", line)[:2] for line in text.splitlines()] for text in (kept[0], made))
    assert told == here, "EOPIPE_WRITE_TABLE=1 make test-engines writes the table anew"
    columns = list(zip(*(line.split("|")[4:-1] for line in kept[0].splitlines()[2:]), strict=True))
    assert [len(set(column)) for column in columns] == [1] * len(PAYLOAD)


def test_folds_come_beside_the_same_model_and_what_is_not_wanted_is_not_there(by: Made) -> None:
    folder = by(CWLTOOL).folder
    shutil.rmtree(folder / "out")
    # The steps that are no folds are in its cache.
    folds = replace(CWLTOOL, command=lambda folder: cwltool(folder, folds=3, fold=[0, 2], **BARE))
    assert folds.run(folder).digests == by(SNAKEMAKE).digests
    made = {path.name for path in (folder / "out").iterdir()}
    assert {"model-fold-0", "model-fold-2", "metrics-fold-0.json", "metrics-fold-2.json"} <= made
    assert not made & {"model-fold-1", "model.onnx", "report.html", "crate"}
    scores = [(folder / f"out/metrics{end}.json").read_bytes() for end in ("", "-fold-0", "-fold-2")]
    assert len(set(scores)) == len(scores)
