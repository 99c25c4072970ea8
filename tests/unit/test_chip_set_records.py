"""The run record of an import: its files, its lineage, its place in the crate of a run; the CWL tool."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from chip_files import import_set, numbered_chip, write_chip, write_pairs, write_world
from scenery import Run, split_outputs

from eopipe.publish import digest, sha256
from eopipe.run.rules import records
from eopipe.text_files import read_json

CLASSES = ("--classes", "land", "water", "snow")
SHAPES = [(16, 16)] * 3


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with pairs in `data`."""
    write_pairs(tmp_path / "data", SHAPES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def import_pairs(run: Run, *options: object, root: str = "data") -> int:
    patterns = ("--root", root, "--images", "S2/*_S2.tif", "--masks", "labels/*_label.tif")
    return int(run("import", "set", *patterns, *CLASSES, *options).code)


def inputs(record: Path) -> dict[str, str]:
    """The sha256 of each input of a record by its path."""
    return {row["path"]: row["sha256"] for row in read_json(record)["inputs"]}


def test_the_record_has_each_image_and_mask_the_options_and_the_stores(run: Run, project: Path) -> None:
    assert import_pairs(run) == 0
    record = read_json(project / "set.run.json")
    files = sorted(path for path in (project / "data").rglob("*.tif"))
    assert inputs(project / "set.run.json") == {str(path.relative_to(project)): sha256(path) for path in files}
    assert (record["stage"], record["status"], record["settings"]["images"]) == ("import", "completed", "S2/*_S2.tif")
    paths = ["set", "set/tiles/chips-0000.zarr", "set/labels/chips-0000.zarr"]
    assert [(row.get("path", row["name"]), row["sha256"]) for row in record["outputs"]] == [
        (path, digest(project / path)) for path in paths
    ]


def test_patterns_give_the_same_bytes_from_a_root_and_from_the_current_folder(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert import_pairs(run) == 0
    monkeypatch.chdir(project / "data")
    patterns = ("--images", "S2/*_S2.tif", "--masks", "labels/*_label.tif")
    assert run("import", "set", *patterns, *CLASSES).code == 0
    assert digest(project / "data/set") == digest(project / "set")


@pytest.mark.parametrize("way", ["folders", "windows"])
def test_the_record_has_the_files_of_the_folders_of_classes_and_of_a_list(run: Run, project: Path, way: str) -> None:
    if way == "folders":
        for number, name in enumerate(("crop/a", "lake/b")):
            write_chip(project / f"c/{name}.tif", numbered_chip(number, (16, 16)))
        assert run("import", "set", "--folders", "c").code == 0
        expected = {path: path for path in ("c/crop/a.tif", "c/lake/b.tif")}
    else:
        rows = [
            {"id": name, "image": f"S2/0{number}_S2.tif", "window": [0, 0, 8, 8], "label": name}
            for number, name in enumerate("ab")
        ]
        (project / "data/w.json").write_text(json.dumps(rows))
        assert run("import", "set", "--windows", "data/w.json").code == 0
        # As the list has them.
        expected = {path: f"data/{path}" for path in ("w.json", "S2/00_S2.tif", "S2/01_S2.tif")}
    assert inputs(project / "set.run.json") == {name: sha256(project / path) for name, path in expected.items()}


def test_a_list_of_windows_starts_from_the_root(run: Run, project: Path) -> None:
    rows = [{"id": name, "image": "S2/00_S2.tif", "window": [0, 0, 8, 8], "label": name} for name in "ab"]
    (project / "w.json").write_text(json.dumps(rows))
    assert run("import", "set", "--windows", "w.json").code == 3
    assert run("import", "set", "--windows", "w.json", "--root", "data").code == 0


def test_a_failed_import_leaves_the_record_of_the_set_that_stays(run: Run, project: Path) -> None:
    assert import_pairs(run) == 0
    before = (project / "set.run.json").read_bytes()
    assert import_pairs(run, "--bands", "one") == 3
    assert (project / "set.run.json").read_bytes() == before
    assert import_pairs(run, "--collection", "other") == 0
    assert read_json(project / "set.run.json")["settings"]["collection"] == "other"


def test_a_mistake_in_the_options_leaves_no_record(run: Run, project: Path) -> None:
    assert import_pairs(run, root="none") == 3
    assert import_pairs(run, "--folders", "data") == 2
    assert not (project / "set.run.json").exists()


@pytest.mark.parametrize("name", ["set", "set/tiles/chips-0000.zarr", "set/labels/chips-0000.zarr/label"])
def test_the_lineage_of_a_store_is_its_import_with_its_files(run: Run, project: Path, name: str) -> None:
    assert import_pairs(run) == 0
    text = run("lineage", name).stdout
    assert re.search(r"^  import +20.*\n +images=S2/\*_S2.tif masks=", text, re.MULTILINE), text
    assert f"data/S2/01_S2.tif  sha256 {sha256(project / 'data/S2/01_S2.tif')}" in text


def test_a_store_that_was_changed_after_its_import_has_no_lineage(run: Run, project: Path) -> None:
    assert import_pairs(run) == 0
    (project / "set/tiles/chips-0000.zarr/manifest.json").write_text('{"files": []}')
    changed = run("lineage", "set/tiles/chips-0000.zarr")
    assert (changed.code, "differs from its record" in changed.stderr) == (4, True), changed.stderr


def test_verify_repairs_a_set_by_the_command_of_its_record(run: Run, project: Path) -> None:
    assert import_pairs(run) == 0
    before = digest(project / "set")
    assert run("verify", ".").code == 0
    (project / "set/chips.json").unlink()
    assert run("verify", ".").code == 4
    assert run("verify", "set", "--repair").stdout == "set was rebuilt with the same content\n"
    assert digest(project / "set") == before


def graph_of(crate: Path) -> dict[str, dict[str, Any]]:
    return {entity["@id"]: entity for entity in read_json(crate / "ro-crate-metadata.json")["@graph"]}


def references(value: Any) -> list[str]:
    return [row["@id"] for row in (value if isinstance(value, list) else [value])]


def test_the_crate_of_a_chip_set_begins_with_the_import_and_its_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path, zones=6, chips=2)
    stores = import_set(run, Path())
    plan = ("--method", "group", "--by", "column", "--attribute", "group", "--val-groups", "z01", "--test-groups")
    (tmp_path / "results").mkdir()
    outputs = split_outputs(Path("results"))
    allowed = ("--allow", "near-duplicate: made up")
    done = run("split", *stores, *outputs, *plan, "z02", *allowed)
    assert done.code == 0, done.stderr
    manifests = [f"set/{kind}/chips-0000.zarr/manifest.json" for kind in ("tiles", "labels")]
    files = records([*manifests, "results/split.json"])
    assert files == ["results/split.json.run.json", "set.run.json"]
    (tmp_path / "Snakefile").write_text("")
    words = ("--records", *files, "--payload", "results/split.json", "--workflow", "Snakefile")
    packaged = run("crate", *words, "--crate", "crate")
    assert packaged.code == 0, packaged.stderr
    entities = graph_of(tmp_path / "crate")
    action = entities["#job/import"]
    sources = [entities[name] for name in references(action["object"]) if name.startswith("#sha256/")]
    paths = [*(tmp_path / "images").iterdir(), *(tmp_path / "masks").iterdir()]
    assert {row["alternateName"]: row["sha256"] for row in sources} == {
        str(path.relative_to(tmp_path)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths
    }
    assert not [*(tmp_path / "crate").rglob("*.tif")]
    results = {entities[name]["sha256"] for name in references(action["result"])}
    stored = [path for path in stores if isinstance(path, Path)]
    assert results == {digest(path) for path in (Path("set"), *stored)}
    step = entities["#step/import"]
    assert (step["position"], entities["#step/split"]["position"]) == ("1", "2")
    read = {entities[name].get("sha256") for name in references(entities["#job/split"]["object"])}
    assert {digest(path) for path in stored} <= read
    text = run("lineage", "crate/split.json").stdout
    assert re.search(r"split .*\n(?: .*\n)*  import ", text), text
    assert "    images/z00-0.tif  sha256 " in text


def test_the_tool_gives_the_folder_first_and_returns_the_stores() -> None:
    tool = yaml.safe_load((Path(__file__).parents[2] / "cwl/import.cwl").read_text())
    assert tool["inputs"]["chip_set_name"]["inputBinding"] == {"position": -1}
    assert tool["outputs"]["tiles"]["outputBinding"]["glob"] == "$(inputs.chip_set_name)/tiles/*"
    assert "Directory" in tool["inputs"]["root"]["type"]
