"""A stage replaces nothing that it did not make."""

import signal
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest
from scenery import Catalog, Run

from eopipe.contract import STAGES, Output, stage
from eopipe.errors import UsageError
from eopipe.provenance.record import record_path, refuse_foreign_outputs
from eopipe.publish import MANIFEST, publish
from eopipe.text_files import read_json, write_json

# The process of a stage that ends, by a signal that it cannot catch, between its outputs and its record.
KILLED_AFTER_PUBLISHING = """
import os, signal, sys
from eopipe import cli
from eopipe.provenance import record
record.write_record = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
cli.main(sys.argv[1:])
"""


@pytest.fixture
def search(catalog: Catalog, tmp_path: Path) -> list[object]:
    """The command line of a valid search."""
    catalog.add("A")
    outputs = [word for port in ("grid", "selection") for word in (f"--{port}", tmp_path / f"{port}.json")]
    return ["search", "--catalog", catalog.write(), "--assets", "red", *outputs, "--items", tmp_path / "items"]


def test_a_foreign_folder_is_unchanged_and_named(search: list[object], run: Run, tmp_path: Path) -> None:
    (tmp_path / "items").mkdir()
    (tmp_path / "items/thesis.txt").write_text("years")
    for _ in range(2):
        completed = run(*search)
        assert completed.code == 2
        assert (
            f"would overwrite files that it did not write: --items {tmp_path}/items contains thesis.txt"
            in completed.stderr
        )
    assert [path.name for path in (tmp_path / "items").iterdir()] == ["thesis.txt"]
    assert not (tmp_path / "items.run.json").exists()


def test_a_folder_does_not_replace_a_file_nor_a_file_a_folder(search: list[object], run: Run, tmp_path: Path) -> None:
    (tmp_path / "items").write_text("years")
    (tmp_path / "grid.json").mkdir()
    (tmp_path / "grid.json/thesis.txt").write_text("years")
    completed = run(*search)
    assert completed.code == 2
    assert "items is a file; --grid" in completed.stderr
    assert "grid.json is a folder; choose another path" in completed.stderr
    assert (tmp_path / "items").read_text() == (tmp_path / "grid.json/thesis.txt").read_text() == "years"


def test_the_output_of_another_stage_is_not_replaced(search: list[object], run: Run, tmp_path: Path) -> None:
    assert run(*search).code == 0
    item = tmp_path / "items/A.geojson"
    before = item.read_bytes()
    completed = run("fetch", "--item", item, "--scene", tmp_path / "items", "--catalog", search[2])
    assert completed.code == 2
    assert "items contains outputs of search" in completed.stderr
    assert item.read_bytes() == before


MODEL_MAKERS = [name for name in STAGES if any(port.name == "model" for port in stage(name).of(Output))]


@pytest.mark.parametrize(("maker", "other"), [*permutations(MODEL_MAKERS, 2)])
def test_stages_that_make_the_model_of_a_run_replace_it(maker: str, other: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    with publish(model) as draft:
        draft.mkdir()
        (draft / "model.json").write_text("{}")
    write_json(record_path(model), {"stage": maker, "outputs": [{"name": "model", "files": 2}]})
    values = {port.name: None for port in stage(other).of(Output)} | {"model": model}
    refuse_foreign_outputs(stage(other), values)
    write_json(record_path(model), {"stage": "fetch", "outputs": [{"name": "model", "files": 2}]})
    with pytest.raises(UsageError, match="model contains outputs of fetch"):
        refuse_foreign_outputs(stage(other), values)


def test_a_stage_replaces_its_output_also_after_an_engine_removed_a_part(
    search: list[object], run: Run, tmp_path: Path
) -> None:
    (tmp_path / "items").mkdir()
    assert run(*search).code == 0
    # Snakemake removes the declared output, the manifest of the folder, before the job runs again.
    (tmp_path / "items/manifest.json").unlink()
    assert run(*search).code == 0
    (tmp_path / "items.run.json").unlink()
    assert run(*search).code == 0
    assert read_json(tmp_path / "items.run.json")["status"] == "completed"


@pytest.mark.parametrize("removed", ["", "manifest.json"])
def test_a_stage_replaces_what_it_published_before_it_was_killed(
    removed: str, search: list[object], run: Run, tmp_path: Path
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER_PUBLISHING, *map(str, search)], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "items/A.geojson").is_file()
    assert read_json(tmp_path / "items.run.json")["status"] == "failed"
    assert "the job has not ended" in read_json(tmp_path / "items.run.json")["error"]
    if removed:
        # Snakemake removes the declared outputs of a job that failed.
        (tmp_path / "items" / removed).unlink()
    assert run(*search).code == 0
    assert read_json(tmp_path / "items.run.json")["status"] == "completed"


def test_a_file_beside_the_outputs_in_a_published_folder_is_not_lost(
    search: list[object], run: Run, tmp_path: Path
) -> None:
    assert run(*search).code == 0
    (tmp_path / "items/thesis.txt").write_text("years")
    completed = run(*search)
    assert completed.code == 2
    assert "items contains thesis.txt" in completed.stderr
    # Snakemake removes the declared output before the job runs again.
    (tmp_path / "items/manifest.json").unlink()
    completed = run(*search)
    assert completed.code == 2
    assert "items contains 2 files instead of 1" in completed.stderr
    assert (tmp_path / "items/thesis.txt").read_text() == "years"


# What may lie where a folder is published, as its files.
FOREIGN = {
    "files": {"thesis.txt": "years"},
    "hidden files": {".git/HEAD": "ref: refs/heads/main"},
    "a manifest of something else": {MANIFEST: '{"name": "An app"}', "app.js": "start()"},
    "a file that is new in it": {MANIFEST: '{"files": []}', "thesis.txt": "years"},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_publishing_a_folder_replaces_nothing_that_was_not_published(kind: str, tmp_path: Path) -> None:
    for name, text in FOREIGN[kind].items():
        path = tmp_path / "target" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="which eopipe did not write"), publish(tmp_path / "target", folder=True):
        pytest.fail("the content of a folder that cannot be published was made")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_what_came_while_a_folder_was_written_is_not_replaced(tmp_path: Path) -> None:
    writing = publish(tmp_path / "target", folder=True)
    writing.__enter__()
    (tmp_path / "target").mkdir()
    (tmp_path / "target/thesis.txt").write_text("years")
    with pytest.raises(UsageError, match=r"target contains thesis\.txt"):
        writing.__exit__(None, None, None)
    assert (tmp_path / "target/thesis.txt").read_text() == "years"


@pytest.mark.parametrize("folder", [True, False])
def test_a_folder_and_a_file_do_not_replace_each_other(folder: bool, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("years") if folder else target.mkdir()
    with pytest.raises(UsageError, match="is a f"), publish(target, folder=folder):
        pass
    assert target.read_text() == "years" if folder else target.is_dir()


def test_a_folder_that_was_published_is_replaced_also_if_files_are_gone(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with publish(tmp_path / "target", folder=True) as draft:
            (draft / "a").write_text(text)
            (draft / "b").write_text(text)
        (tmp_path / "target/b").unlink()
    assert (tmp_path / "target/a").read_text() == "new"
