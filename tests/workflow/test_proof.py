"""A run proves itself: its crate is checked, made again in another folder, and followed back to its scenes."""

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
from eopipe.publish import read_json, sha256, write_json, write_manifest

METADATA = "ro-crate-metadata.json"
Graph = dict[str, dict[str, Any]]


@pytest.fixture
def crate(finished: Project, tmp_path: Path) -> Path:
    """A copy of the finished project's crate, which a test may change."""
    return shutil.copytree(finished.results / "crate", tmp_path / "crate")


def rewrite(crate: Path, change: Callable[[Graph], None]) -> Path:
    """Change the metadata, and the manifest with them, as somebody would who forges a crate."""
    metadata = read_json(crate / METADATA)
    graph = {entity["@id"]: entity for entity in metadata["@graph"]}
    change(graph)
    write_json(crate / METADATA, metadata | {"@graph": list(graph.values())})
    write_manifest(crate)
    return crate


def ids(value: Any) -> list[str]:
    return [one["@id"] for one in (value if isinstance(value, list) else [value])]


# Checked


def test_a_crate_as_it_was_made_is_whole_and_its_digest_is_told(crate: Path) -> None:
    done = eopipe("verify", crate)
    assert done.returncode == 0, done.stdout
    assert re.search(rf"digest of the crate: {sha256(crate / 'manifest.json')}", done.stdout)


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
    "changed in a folder": (forge_inside, "model/history.json is not what the manifest.json of model tells"),
    "listed only": (
        lambda crate: rewrite(
            crate, lambda graph: graph.update({"../grid.json": graph["grid.json"] | {"@id": "../grid.json"}})
        ),
        "../grid.json is in the metadata, but not in manifest.json",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_changed_missing_or_extra_file_is_named_in_one_sentence(crate: Path, run: Run, name: str) -> None:
    damage, words = DAMAGES[name]
    damage(crate)
    ended = run("verify", crate)
    assert ended.code == 4
    assert words in ended.stderr
    assert ended.stderr.count("error: ") == 1


def newer(graph: Graph) -> None:
    for entity in (graph["./"], graph[METADATA]):
        told = json.dumps(entity["conformsTo"]).replace("provenance/0.5", "provenance/0.6")
        entity["conformsTo"] = json.loads(told)


def newest(graph: Graph) -> None:
    told = json.dumps(graph[METADATA]["conformsTo"]).replace("crate/1.1", "crate/1.3")
    graph[METADATA]["conformsTo"] = json.loads(told)


def foreign(graph: Graph) -> None:
    for identifier in [one for one in graph if one.startswith("https://github.com/eopipe/")]:
        graph[identifier]["@id"] = identifier.replace("eopipe", "other")


@pytest.mark.parametrize("command", ["verify", "rerun", "lineage"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (newer, "follows Provenance Run Crate 0.6, and this eopipe reads 0.5; use the eopipe that made it, or a newer"),
        (newest, "follows RO-Crate 1.3, and this eopipe reads 1.1"),
        (foreign, "but not one of an eopipe run"),
    ],
)
def test_a_crate_of_a_newer_profile_or_of_others_is_told_in_one_sentence(
    crate: Path, run: Run, command: str, change: Callable[[Graph], None], words: str
) -> None:
    rewrite(crate, change)
    ended = run(command, crate / "classes.tif" if command == "lineage" else crate)
    assert ended.code == 3
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not crate.with_name("crate-again").exists()


@pytest.mark.parametrize("text", ["{", '{"@graph": 3}', '{"@graph": [{"@id": "https://w3id.org/ro/wfrun/x"}]}'])
def test_a_broken_metadata_file_is_no_crate_and_no_bug(crate: Path, run: Run, text: str) -> None:
    (crate / METADATA).write_text(text)
    assert run("verify", crate).code in (3, 4)
    assert run("rerun", crate).code == 3


def test_a_checkout_is_the_crate_of_a_workflow_and_of_no_run(run: Run) -> None:
    ended = run("rerun", ROOT)
    assert ended.code == 3
    assert "no crate of a run" in ended.stderr


# Made again


def eopipe(*words: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """A command in a process of its own; what it told on either stream stands in `stdout`."""
    return subprocess.run(
        [sys.executable, "-m", "eopipe", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        text=True,
        timeout=600,
        check=False,
        env=environment(),
    )


@dataclass(frozen=True)
class Again:
    """The run of a crate, made again elsewhere."""

    folder: Path
    told: str
    code: int


@pytest.fixture(scope="module")
def again(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Again:
    """The finished project's crate, carried to a place where nothing else of the project is, and made again there."""
    place = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(finished.results / "crate", place / "crate")
    done = eopipe("rerun", "crate", "--data", ROOT, cwd=place)
    return Again(place / "crate-again", done.stdout, done.returncode)


def test_the_crate_of_a_run_made_again_elsewhere_ends_identical(again: Again, finished: Project) -> None:
    assert again.code == 0, again.told
    jobs = 2 * len(DAYS) + 8
    assert re.search(
        rf"^identical: \d+ outputs of {jobs} jobs have the digests of the crate$", again.told, re.MULTILINE
    )
    for made, first in (("train/model/manifest.json", "model/manifest.json"), ("report/report.html", "report.html")):
        assert sha256(again.folder / made) == sha256(finished.results / first)
    outputs = read_json(again.folder / "rerun.json")["outputs"]
    assert all(one["same"] for one in outputs)
    assert {"classes", "probabilities", "model", "metrics", "model_card"} <= {one["output"] for one in outputs}


def test_what_was_made_again_is_kept_when_it_is_made_again_once_more(again: Again) -> None:
    before = {path: path.stat().st_mtime_ns for path in again.folder.rglob("*.run.json")}
    assert len(before) == 2 * len(DAYS) + 8
    done = eopipe("rerun", "crate", "--data", ROOT, cwd=again.folder.parent)
    assert done.returncode == 0, done.stdout
    assert {path: path.stat().st_mtime_ns for path in again.folder.rglob("*.run.json")} == before


def of_one_scene(crate: Path, **settings: Any) -> Path:
    """Leave only one scene's fetch and preprocess in a crate, with other settings than made its tiles."""

    def cut(graph: Graph) -> None:
        kept = {f"#job/{stage}/S2_ROMANIA_{DAYS[0]}" for stage in ("fetch", "preprocess")} | {"#job/search"}
        for identifier in [one for one in graph if one.startswith("#job/") and one not in kept]:
            del graph[identifier]
        for name, value in settings.items():
            graph[f"#value/preprocess/{name}"]["value"] = value

    return rewrite(crate, cut)


def test_what_differs_is_told_with_its_cause_and_its_files(crate: Path, tmp_path: Path) -> None:
    of_one_scene(crate, chunk=64)
    done = eopipe("rerun", crate, "--data", ROOT, "--to", tmp_path / "made")
    assert done.returncode == 4
    name = f"S2_ROMANIA_{DAYS[0]}"
    assert f"fetch {name}: scene identical" in done.stdout
    assert f"preprocess {name}: tiles differs" in done.stdout
    assert "error: 1 of 2 outputs differ" in done.stdout
    assert "though its inputs are the same" in done.stdout
    assert (tmp_path / f"made/preprocess/{name}/{name}.zarr/zarr.json").is_file()


def test_the_crate_of_a_cwl_run_is_made_again_as_well(by_cwl: Path, tmp_path: Path) -> None:
    crate = of_one_scene(shutil.copytree(by_cwl / "crate", tmp_path / "crate"))
    done = eopipe("rerun", crate, "--data", ROOT)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("identical: 2 outputs of 2 jobs have the digests of the crate\n")


def test_a_folder_that_is_there_is_left_alone(crate: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years")
    ended = run("rerun", crate, "--data", ROOT, "--to", tmp_path / "mine")
    assert ended.code == 2
    assert "exists already" in ended.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    ended = run("rerun", crate, "--data", ROOT, "--to", crate / "again")
    assert ended.code == 2
    assert "lies in the crate" in ended.stderr
    assert run("verify", crate).code == 0


def test_the_crate_of_the_working_folder_is_made_again_beside_it(crate: Path) -> None:
    of_one_scene(crate)
    done = eopipe("rerun", ".", "--data", ROOT, cwd=crate)
    assert done.returncode == 0, done.stdout
    assert (crate.parent / "crate-again/rerun.json").is_file()


def test_what_the_crate_only_names_and_is_not_there_is_listed(crate: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/tree_cover_density_2018.tif").write_bytes(b"another file of this name")
    ended = run("rerun", crate, "--data", tmp_path / "empty")
    assert ended.code == 3
    assert "tree_cover_density_2018.tif (sha256 " in ended.stderr
    assert "sample (a folder of" in ended.stderr
    assert not crate.with_name("crate-again").exists()


def test_another_version_of_the_code_is_refused_unless_it_is_meant(crate: Path, tmp_path: Path, run: Run) -> None:
    def older(graph: Graph) -> None:
        for entity in graph.values():
            if str(entity["@id"]).startswith("https://github.com/eopipe/eopipe/blob/"):
                entity["softwareVersion"] = "0.0.9"

    rewrite(crate, older)
    ended = run("rerun", crate, "--data", ROOT)
    assert ended.code == 2
    assert f"was made by eopipe 0.0.9, and this is {__version__}" in ended.stderr
    assert "--other-code" in ended.stderr


def test_another_commit_is_refused_too_wherever_one_stands(crate: Path, run: Run) -> None:
    rewrite(crate, lambda graph: graph["Snakefile"].update(version=f"{__version__} {'a' * 40}"))
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    ended = run("rerun", crate)
    assert ended.code == 2
    assert "check that one out" in ended.stderr


def test_a_damaged_crate_is_not_made_again(crate: Path, run: Run) -> None:
    forge(crate)
    ended = run("rerun", crate, "--data", ROOT)
    assert ended.code == 4
    assert "metrics.json has other content than the metadata say" in ended.stderr


def test_a_crate_cannot_make_anything_outside_the_new_folder(crate: Path, run: Run) -> None:
    def lead_out(graph: Graph) -> None:
        for entity in graph.values():
            if entity.get("name") == "metrics.json":
                entity["name"] = "../../metrics.json"

    rewrite(crate, lead_out)
    ended = run("rerun", crate, "--data", ROOT)
    assert ended.code == 3
    assert "is no name of a file" in ended.stderr


# Followed back


def lineage(*words: object) -> str:
    done = eopipe("lineage", *words)
    assert done.returncode == 0, done.stdout
    return done.stdout


def holder(results: Path, name: str) -> tuple[int, int]:
    """Column and row of a pixel in the middle of the first chip of a split."""
    split = read_json(results / "split.json")
    _, row, column = split["samples"][name][0]
    return column + split["chip"] // 2, row + split["chip"] // 2


@pytest.mark.parametrize("name", ["train", "val", "test"])
def test_a_pixel_is_followed_to_its_split_chips_and_scenes(finished: Project, name: str) -> None:
    column, row = holder(finished.results, name)
    told = lineage(f"{finished.results}/maps/mosaic/classes.tif#pixel={column},{row}")
    split = read_json(finished.results / "split.json")
    held = [
        sample
        for sample in split["samples"][name]
        if 0 <= row - sample[1] < split["chip"] and 0 <= column - sample[2] < split["chip"]
    ]
    assert f"split: {name}\n" in told
    assert f"{name}: {len(held)} chips of {split['chip']} pixels" in told
    assert all(f"S2_ROMANIA_{day}" in told for day in DAYS)
    assert "tree_cover_density_2018.tif" in told
    for stage in ("predict", "train", "split", "label", "preprocess", "fetch", "search"):
        assert re.search(rf"^  {stage} +20\d\d-.*, eopipe {re.escape(__version__)}", told, re.MULTILINE), stage
    assert "width=8" in told
    assert "evaluate" not in told, "nothing that came later"


def test_the_same_pixel_by_its_coordinates_and_from_the_crate(finished: Project) -> None:
    import rasterio

    column, row = holder(finished.results, "test")
    path = finished.results / "maps/mosaic/classes.tif"
    with rasterio.open(path) as file:
        x, y = file.xy(row, column)
        value = file.read(1)[row, column]
    by_pixel, by_place = lineage(f"{path}#pixel={column},{row}"), lineage(f"{path}#{x},{y}")
    assert by_pixel == by_place
    assert f"classes.tif: class {value} (" in by_pixel
    crate = lineage(f"{finished.results}/crate/classes.tif#{x},{y}")
    assert "split: test\n" in crate
    assert "its tiles are not here" in crate
    assert by_pixel.partition("from 6 scenes")[2].count("* S2_ROMANIA_") == len(DAYS)


def test_lineage_reads_and_writes_nothing(finished: Project) -> None:
    before = finished.digests()
    lineage(finished.results / "model/model.safetensors")
    assert finished.digests() == before


def test_a_result_of_cwl_is_followed_as_one_of_snakemake(finished: Project, by_cwl: Path) -> None:
    column, row = holder(finished.results, "val")
    one = lineage(f"{finished.results}/maps/mosaic/classes.tif#pixel={column},{row}")
    other = lineage(f"{by_cwl}/crate/classes.tif#pixel={column},{row}")
    assert "split: val\n" in other
    assert [line for line in one.splitlines() if "sha256" in line] == [
        line for line in other.splitlines() if "sha256" in line
    ]


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("maps/mosaic/classes.tif#pixel=5000,1", 2, "lies beyond classes.tif"),
        ("maps/mosaic/classes.tif#1,2", 2, "lies beyond classes.tif"),
        ("maps/mosaic/classes.tif#here", 2, "is no place in a map"),
        ("metrics.json#1,2", 3, "is no map"),
        ("nothing.tif", 3, "there is no"),
        ("logs", 3, "no job that is known here made"),
    ],
)
def test_what_cannot_be_followed_is_told_in_one_sentence(
    finished: Project, run: Run, path: str, code: int, words: str
) -> None:
    ended = run("lineage", f"{finished.results}/{path}")
    assert (ended.code, words in ended.stderr, ended.stderr.count("\n")) == (code, True, 1), ended.stderr


def test_a_result_without_records_is_told_to_have_none(finished: Project, tmp_path: Path, run: Run) -> None:
    (tmp_path / "broken.run.json").write_text("{")
    (tmp_path / "out").mkdir()
    path = shutil.copy(finished.results / "maps/mosaic/classes.tif", tmp_path / "out")
    ended = run("lineage", path)
    assert ended.code == 3
    assert "no run record beside or above classes.tif" in ended.stderr


def test_a_map_that_was_changed_since_is_not_followed(finished: Project, tmp_path: Path, run: Run) -> None:
    results = shutil.copytree(finished.results, tmp_path / "results", copy_function=os.link)
    path = results / "maps/mosaic/classes.tif"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1] + b"x")
    ended = run("lineage", path)
    assert ended.code == 4
    assert "is not what its record tells" in ended.stderr
