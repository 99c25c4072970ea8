"""The crate of a run is verified, rerun in another folder, and its results are traced back to their scenes."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from projects import DAYS, ROOT, Project, environment
from scenery import Run

from eopipe import __version__
from eopipe.provenance.crate_reader import crate_damages, read_crate
from eopipe.publish import sha256, write_manifest
from eopipe.reporting.wording import plural
from eopipe.text_files import read_json, write_json

METADATA = "ro-crate-metadata.json"
Graph = dict[str, dict[str, Any]]


@pytest.fixture
def crate(finished: Project, tmp_path: Path) -> Path:
    """A copy of the finished project's crate, which a test may change."""
    return shutil.copytree(finished.results / "crate", tmp_path / "crate")


def rewrite(crate: Path, change: Callable[[Graph], None]) -> Path:
    """Change the metadata, and the manifest with them, as a forger of a crate would."""
    metadata = read_json(crate / METADATA)
    graph = {entity["@id"]: entity for entity in metadata["@graph"]}
    change(graph)
    write_json(crate / METADATA, metadata | {"@graph": list(graph.values())})
    write_manifest(crate)
    return crate


def ids(value: Any) -> list[str]:
    return [reference["@id"] for reference in (value if isinstance(value, list) else [value])]


# eopipe verify


def test_an_unchanged_crate_is_complete_and_its_digest_is_printed(crate: Path) -> None:
    result = eopipe("verify", crate)
    assert result.returncode == 0, result.stdout
    assert re.search(rf"digest of the crate: {sha256(crate / 'manifest.json')}", result.stdout)


def flip(crate: Path) -> None:
    (crate / "metrics.json").write_text((crate / "metrics.json").read_text().replace("0", "1", 1))


def forge(crate: Path) -> None:
    flip(crate)
    write_manifest(crate)


def forge_inside(crate: Path) -> None:
    (crate / "model/history.json").write_text("{}")
    write_manifest(crate)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "changed": (flip, "metrics.json has other content than the manifest says"),
    "missing": (lambda crate: (crate / "grid.json").unlink(), "grid.json is missing"),
    "extra": (lambda crate: (crate / "more.txt").write_text("more"), "more.txt does not belong there"),
    "extra in a folder": (lambda crate: (crate / "model/x").write_text(""), "model/x does not belong there"),
    "changed with the manifest": (forge, "metrics.json has other content than the metadata say"),
    "changed in a folder": (forge_inside, "model/history.json is not what the manifest.json of model says"),
    "listed only": (
        lambda crate: rewrite(
            crate, lambda graph: graph.update({"../grid.json": graph["grid.json"] | {"@id": "../grid.json"}})
        ),
        "../grid.json is in the metadata, but not in manifest.json",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_changed_missing_or_extra_file_is_named_in_one_sentence(crate: Path, run: Run, name: str) -> None:
    damage, message = DAMAGES[name]
    damage(crate)
    completed = run("verify", crate)
    assert completed.code == 4
    assert message in completed.stderr
    assert completed.stderr.count("error: ") == 1


def of_versions(crate: str, profile: str) -> Callable[[Graph], None]:
    """Change the versions of RO-Crate and of the Workflow Run profiles that the metadata name."""

    def change(graph: Graph) -> None:
        for identifier, entity in graph.items():
            text = re.sub(r"(w3id\.org/ro/wfrun/\w+)/0\.5", rf"\1/{profile}", json.dumps(entity))
            graph[identifier] = json.loads(text.replace("w3id.org/ro/crate/1.1", f"w3id.org/ro/crate/{crate}"))

    return change


def foreign(graph: Graph) -> None:
    for identifier in [name for name in graph if name.startswith("https://github.com/eopipe/")]:
        graph[identifier]["@id"] = identifier.replace("eopipe", "other")


@pytest.mark.parametrize("command", ["verify", "rerun", "lineage"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            of_versions("1.3", "0.7"),
            "follows RO-Crate 1.3 with Provenance Run Crate 0.7, and this eopipe reads 1.1",
        ),
        (of_versions("1.4", "0.6"), "reads 1.1 with 0.5 or 1.3 with 0.6; use the eopipe that made it, or a newer one"),
        (of_versions("1.1", "0.6"), "follows RO-Crate 1.1 with Provenance Run Crate 0.6, and"),
        (of_versions("1.3", "0.5"), "follows RO-Crate 1.3 with Provenance Run Crate 0.5, and"),
        (foreign, "but not one of an eopipe run"),
    ],
)
def test_a_crate_of_a_newer_profile_or_of_another_tool_is_refused_in_one_sentence(
    crate: Path, run: Run, command: str, change: Callable[[Graph], None], message: str
) -> None:
    rewrite(crate, change)
    completed = run(command, crate / "classes.tif" if command == "lineage" else crate)
    assert completed.code == 3
    assert message in completed.stderr
    assert completed.stderr.count("\n") == 1
    assert not crate.with_name("crate-again").exists()


def test_a_crate_of_the_profile_0_6_has_the_jobs_of_one_of_0_5_for_every_reader(crate: Path, run: Run) -> None:
    jobs, lineage = read_crate(crate).jobs, run("lineage", crate / "classes.tif").stdout
    rewrite(crate, of_versions("1.3", "0.6"))
    text = (crate / METADATA).read_text().replace("ro/crate/1.1/context", "ro/crate/1.3/context")
    (crate / METADATA).write_text(text.replace("workflow-ro-crate/1.0", "workflow-ro-crate/1.1"))
    write_manifest(crate)
    assert read_crate(crate).jobs == jobs
    assert (run("verify", crate).code, crate_damages(crate)) == (0, [])
    assert "train" in lineage
    assert run("lineage", crate / "classes.tif").stdout == lineage
    assert "does not contain these inputs" in run("rerun", crate, "--data", crate / "scenes").stderr


@pytest.mark.parametrize("text", ["{", '{"@graph": 3}', '{"@graph": [{"@id": "https://w3id.org/ro/wfrun/x"}]}'])
def test_a_broken_metadata_file_is_reported_and_is_not_a_bug(crate: Path, run: Run, text: str) -> None:
    (crate / METADATA).write_text(text)
    assert run("verify", crate).code in (3, 4)
    assert run("rerun", crate).code == 3


def test_a_checkout_is_the_crate_of_a_workflow_and_not_of_a_run(run: Run) -> None:
    completed = run("rerun", ROOT)
    assert completed.code == 3
    assert "is not the crate of a run" in completed.stderr


# eopipe rerun


def eopipe(*arguments: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command in a process of its own; `stdout` has the text of both streams."""
    return subprocess.run(
        [sys.executable, "-m", "eopipe", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        text=True,
        timeout=600,
        check=False,
        env=environment(),
    )


@dataclass(frozen=True)
class Rerun:
    """The rerun of a crate in another folder."""

    folder: Path
    output: str
    code: int


@pytest.fixture(scope="module")
def rerun(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Rerun:
    """The finished project's crate, copied to a folder with nothing else of the project, and rerun there."""
    folder = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(finished.results / "crate", folder / "crate")
    result = eopipe("rerun", "crate", "--data", ROOT, cwd=folder)
    return Rerun(folder / "crate-again", result.stdout, result.returncode)


@pytest.mark.exhaustive(by="rerun")
def test_the_rerun_of_a_crate_in_another_folder_is_identical(rerun: Rerun, finished: Project) -> None:
    assert rerun.code == 0, rerun.output
    jobs = 2 * len(DAYS) + 9
    assert re.search(
        rf"^identical: \d+ outputs of {jobs} jobs with the digests of the crate$", rerun.output, re.MULTILINE
    )
    for output, original in (
        ("train/model/manifest.json", "model/manifest.json"),
        ("report/report.html", "report.html"),
    ):
        assert sha256(rerun.folder / output) == sha256(finished.results / original)
    outputs = read_json(rerun.folder / "rerun.json")["outputs"]
    assert all(row["same"] for row in outputs)
    assert {"classes", "probabilities", "model", "metrics", "model_card"} <= {row["output"] for row in outputs}


@pytest.mark.exhaustive(by="rerun")
def test_a_second_rerun_keeps_the_outputs_of_the_first(rerun: Rerun) -> None:
    before = {path: path.stat().st_mtime_ns for path in rerun.folder.rglob("*.run.json")}
    assert len(before) == 2 * len(DAYS) + 9
    result = eopipe("rerun", "crate", "--data", ROOT, cwd=rerun.folder.parent)
    assert result.returncode == 0, result.stdout
    assert {path: path.stat().st_mtime_ns for path in rerun.folder.rglob("*.run.json")} == before


def of_one_scene(crate: Path, **settings: Any) -> Path:
    """Keep only one scene's fetch and preprocess in a crate, with settings other than those of its tiles."""

    def cut(graph: Graph) -> None:
        jobs = {f"#job/{stage}/S2_ROMANIA_{DAYS[0]}" for stage in ("fetch", "preprocess")} | {"#job/search"}
        for identifier in [name for name in graph if name.startswith("#job/") and name not in jobs]:
            del graph[identifier]
        for name, value in settings.items():
            graph[f"#value/preprocess/{name}"]["value"] = value

    return rewrite(crate, cut)


def test_a_difference_is_reported_with_its_cause_and_its_files(crate: Path, tmp_path: Path) -> None:
    of_one_scene(crate, chunk=64)
    result = eopipe("rerun", crate, "--data", ROOT, "--to", tmp_path / "rerun")
    assert result.returncode == 4
    name = f"S2_ROMANIA_{DAYS[0]}"
    assert f"fetch {name}: scene identical" in result.stdout
    assert f"preprocess {name}: tiles differs" in result.stdout
    assert "error: 1 of 2 outputs differ" in result.stdout
    assert "although its inputs are identical" in result.stdout
    assert (tmp_path / f"rerun/preprocess/{name}/{name}.zarr/zarr.json").is_file()


@pytest.mark.exhaustive
def test_the_crate_of_a_cwl_run_is_rerun_as_well(by_cwl: Path, tmp_path: Path) -> None:
    crate = of_one_scene(shutil.copytree(by_cwl / "crate", tmp_path / "crate"))
    result = eopipe("rerun", crate, "--data", ROOT)
    assert result.returncode == 0, result.stdout
    assert result.stdout.endswith("identical: 2 outputs of 2 jobs with the digests of the crate\n")


def test_an_existing_folder_is_not_changed(crate: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/thesis.txt").write_text("years")
    completed = run("rerun", crate, "--data", ROOT, "--to", tmp_path / "thesis")
    assert completed.code == 2
    assert "exists already" in completed.stderr
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["thesis.txt"]
    completed = run("rerun", crate, "--data", ROOT, "--to", crate / "again")
    assert completed.code == 2
    assert "is inside of the crate" in completed.stderr
    assert run("verify", crate).code == 0


def test_the_crate_in_the_working_folder_is_rerun_beside_it(crate: Path) -> None:
    of_one_scene(crate)
    result = eopipe("rerun", ".", "--data", ROOT, cwd=crate)
    assert result.returncode == 0, result.stdout
    assert (crate.parent / "crate-again/rerun.json").is_file()


def test_missing_inputs_that_are_not_in_the_crate_are_listed(crate: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/tree_cover_density_2018.tif").write_bytes(b"another file of this name")
    completed = run("rerun", crate, "--data", tmp_path / "empty")
    assert completed.code == 3
    assert "tree_cover_density_2018.tif (sha256 " in completed.stderr
    assert "sample (a folder of" in completed.stderr
    assert not crate.with_name("crate-again").exists()


def test_another_version_of_the_code_is_refused_unless_it_is_allowed(crate: Path, tmp_path: Path, run: Run) -> None:
    def older(graph: Graph) -> None:
        for entity in graph.values():
            if str(entity["@id"]).startswith("https://github.com/eopipe/eopipe/blob/"):
                entity["softwareVersion"] = "0.0.9"

    rewrite(crate, older)
    completed = run("rerun", crate, "--data", ROOT)
    assert completed.code == 2
    assert f"was made by eopipe 0.0.9, and this is {__version__}" in completed.stderr
    assert "--other-code" in completed.stderr


def test_another_commit_is_refused_too_where_both_are_known(crate: Path, run: Run) -> None:
    rewrite(crate, lambda graph: graph["Snakefile"].update(version=f"{__version__} {'a' * 40}"))
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout")
    completed = run("rerun", crate)
    assert completed.code == 2
    assert "check that one out" in completed.stderr


def test_a_damaged_crate_is_not_rerun(crate: Path, run: Run) -> None:
    forge(crate)
    completed = run("rerun", crate, "--data", ROOT)
    assert completed.code == 4
    assert "metrics.json has other content than the metadata say" in completed.stderr


def test_a_crate_cannot_write_outside_of_the_new_folder(crate: Path, run: Run) -> None:
    def lead_out(graph: Graph) -> None:
        for entity in graph.values():
            if entity.get("name") == "metrics.json":
                entity["name"] = "../../metrics.json"

    rewrite(crate, lead_out)
    completed = run("rerun", crate, "--data", ROOT)
    assert completed.code == 3
    assert "is not a file name" in completed.stderr


# eopipe rerun --only


def test_chosen_jobs_run_alone_from_the_crate_the_results_the_data_of_the_user_and_each_other(
    crate: Path, finished: Project, tmp_path: Path, run: Run
) -> None:
    again, store = tmp_path / "again", f"S2_ROMANIA_{DAYS[0]}.zarr"
    completed = run("rerun", crate, "--data", finished.folder, "--only", "label", "split", "--to", again)
    assert completed.code == 0, completed.stderr
    assert completed.stdout.endswith("identical: 5 outputs of 2 jobs with the digests of the crate\n")
    assert {path.name for path in again.iterdir()} == {"label", "split", "logs", "rerun.json"}
    label, split = ((again / f"logs/{name}.log").read_text() for name in ("label", "split"))
    assert f"{crate}/grid.json" in label
    assert f"{finished.folder}/sample/" in label
    assert f"{finished.results}/tiles/{store}" in split
    assert f"{again}/label/all.zarr" in split
    assert f"{finished.results}/labels" not in split


def test_a_whole_rerun_in_the_folder_of_chosen_jobs_compares_all(crate: Path, tmp_path: Path, run: Run) -> None:
    of_one_scene(crate)
    command = ("rerun", crate, "--data", ROOT, "--to", tmp_path / "again")
    for only, jobs in ((["--only", f"fetch S2_ROMANIA_{DAYS[0]}"], ["fetch"]), ([], ["fetch", "preprocess"])):
        completed = run(*command, *only)
        assert completed.code == 0, completed.stderr
        assert f"identical: {plural(len(jobs), 'output')} of {plural(len(jobs), 'job')} with" in completed.stdout
        assert [row["job"].split()[0] for row in read_json(tmp_path / "again/rerun.json")["outputs"]] == jobs


def test_inputs_of_chosen_jobs_that_are_nowhere_are_listed_with_the_stages_that_make_them(
    crate: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "empty").mkdir()
    completed = run("rerun", crate, "--only", "evaluate", "label", "--data", tmp_path / "empty")
    assert completed.code == 3
    assert completed.stderr.count("\n") == 1
    assert all(f"S2_ROMANIA_{day}.zarr (sha256 " in completed.stderr for day in DAYS)
    assert "tree_cover_density_2018.tif (sha256 " in completed.stderr
    assert "all.zarr" not in completed.stderr, "label makes it"
    assert "as the results of the run, or add to --only what makes them: preprocess\n" in completed.stderr
    assert not crate.with_name("crate-again").exists()


def test_a_changed_file_in_the_results_is_no_input_of_chosen_jobs(
    crate: Path, finished: Project, tmp_path: Path, run: Run
) -> None:
    store = f"S2_ROMANIA_{DAYS[0]}.zarr"
    shutil.copytree(finished.results / "tiles" / store, tmp_path / "tiles" / store)
    with (tmp_path / "tiles" / store / "zarr.json").open("a") as file:
        file.write(" ")
    completed = run("rerun", crate, "--data", tmp_path / "tiles", "--only", "export")
    assert completed.code == 4
    assert f"{store} is damaged: zarr.json has " in completed.stderr
    assert not crate.with_name("crate-again").exists()


@pytest.mark.parametrize("name", ["evaluat", "composite", "search", "fetch S2"])
def test_a_stage_that_the_crate_has_no_job_of_is_refused_with_those_that_it_has(
    crate: Path, run: Run, name: str
) -> None:
    completed = run("rerun", crate, "--data", ROOT, "--only", "export", name)
    assert completed.code == 2
    assert f"has no completed job of {name} to rerun, but of fetch, preprocess, label, split," in completed.stderr
    assert not crate.with_name("crate-again").exists()


# eopipe lineage


def lineage(*arguments: object) -> str:
    result = eopipe("lineage", *arguments)
    assert result.returncode == 0, result.stdout
    return result.stdout


def pixel_of_split(results: Path, name: str) -> tuple[int, int]:
    """Column and row of a pixel in the middle of the first chip of a split."""
    split = read_json(results / "split.json")
    _, row, column = split["samples"][name][0]
    return column + split["chip"] // 2, row + split["chip"] // 2


@pytest.mark.parametrize("name", ["train", "val", "test"])
def test_a_pixel_is_traced_to_its_split_chips_and_scenes(finished: Project, name: str) -> None:
    column, row = pixel_of_split(finished.results, name)
    text = lineage(f"{finished.results}/maps/mosaic/classes.tif#pixel={column},{row}")
    split = read_json(finished.results / "split.json")
    samples = [
        sample
        for sample in split["samples"][name]
        if 0 <= row - sample[1] < split["chip"] and 0 <= column - sample[2] < split["chip"]
    ]
    assert f"split: {name}\n" in text
    assert f"{name}: {len(samples)} chips of {split['chip']} pixels" in text
    assert all(f"S2_ROMANIA_{day}" in text for day in DAYS)
    assert "tree_cover_density_2018.tif" in text
    for stage in ("predict", "calibrate", "train", "split", "label", "preprocess", "fetch", "search"):
        assert re.search(rf"^  {stage} +20\d\d-.*, eopipe {re.escape(__version__)}", text, re.MULTILINE), stage
    assert "width=8" in text
    assert "evaluate" not in text, "no later stage"


def test_the_same_pixel_by_its_coordinates_and_from_the_crate(finished: Project) -> None:
    import rasterio

    column, row = pixel_of_split(finished.results, "test")
    path = finished.results / "maps/mosaic/classes.tif"
    with rasterio.open(path) as file:
        x, y = file.xy(row, column)
        value = file.read(1)[row, column]
    by_pixel, by_coordinates = lineage(f"{path}#pixel={column},{row}"), lineage(f"{path}#{x},{y}")
    assert by_pixel == by_coordinates
    assert f"classes.tif: class {value} (" in by_pixel
    crate = lineage(f"{finished.results}/crate/classes.tif#{x},{y}")
    assert "split: test\n" in crate
    assert "its tile stores are not available here" in crate
    assert by_pixel.partition("from 6 scenes")[2].count("* S2_ROMANIA_") == len(DAYS)


def test_lineage_reads_and_writes_nothing(finished: Project) -> None:
    before = finished.digests()
    lineage(finished.results / "model/model.safetensors")
    assert finished.digests() == before


def test_a_result_of_cwl_is_traced_like_one_of_snakemake(finished: Project, by_cwl: Path) -> None:
    column, row = pixel_of_split(finished.results, "val")
    by_snakemake = lineage(f"{finished.results}/maps/mosaic/classes.tif#pixel={column},{row}")
    in_cwl = lineage(f"{by_cwl}/crate/classes.tif#pixel={column},{row}")
    assert "split: val\n" in in_cwl
    assert [line for line in by_snakemake.splitlines() if "sha256" in line] == [
        line for line in in_cwl.splitlines() if "sha256" in line
    ]


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("maps/mosaic/classes.tif#pixel=5000,1", 2, "is outside of classes.tif"),
        ("maps/mosaic/classes.tif#1,2", 2, "is outside of classes.tif"),
        ("maps/mosaic/classes.tif#here", 2, "is not a position in a map"),
        ("metrics.json#1,2", 3, "cannot be read as a map"),
        ("nothing.tif", 3, "does not exist"),
        ("logs", 3, "no recorded job made"),
    ],
)
def test_a_path_without_lineage_is_refused_in_one_sentence(
    finished: Project, run: Run, path: str, code: int, message: str
) -> None:
    completed = run("lineage", f"{finished.results}/{path}")
    assert completed.code == code, completed.stderr
    assert message in completed.stderr
    assert completed.stderr.count("\n") == 1, completed.stderr


def test_a_result_without_records_is_refused(finished: Project, tmp_path: Path, run: Run) -> None:
    (tmp_path / "broken.run.json").write_text("{")
    (tmp_path / "out").mkdir()
    path = shutil.copy(finished.results / "maps/mosaic/classes.tif", tmp_path / "out")
    completed = run("lineage", path)
    assert completed.code == 3
    assert "no run record in the folder of classes.tif or above it" in completed.stderr


def test_a_map_that_was_changed_later_is_not_traced(finished: Project, tmp_path: Path, run: Run) -> None:
    results = shutil.copytree(finished.results, tmp_path / "results", copy_function=os.link)
    path = results / "maps/mosaic/classes.tif"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1] + b"x")
    completed = run("lineage", path)
    assert completed.code == 4
    assert "differs from its record" in completed.stderr
