"""Nothing is replaced that the stage did not make itself."""

from pathlib import Path

import pytest
from scenery import Catalog, Run

from eopipe.publish import read_json


@pytest.fixture
def words(catalog: Catalog, tmp_path: Path) -> list[object]:
    """A search that works."""
    catalog.add("A")
    made = [word for port in ("grid", "selection") for word in (f"--{port}", tmp_path / f"{port}.json")]
    return ["search", "--catalog", catalog.write(), "--assets", "red", *made, "--items", tmp_path / "items"]


def test_a_folder_of_somebody_is_left_as_it_is_and_told(words: list[object], run: Run, tmp_path: Path) -> None:
    (tmp_path / "items").mkdir()
    (tmp_path / "items/thesis.txt").write_text("years")
    for _ in range(2):
        ended = run(*words)
        assert ended.code == 2
        assert f"would replace what it did not make: --items {tmp_path}/items holds other files" in ended.stderr
    assert [path.name for path in (tmp_path / "items").iterdir()] == ["thesis.txt"]
    assert not (tmp_path / "items.run.json").exists()


def test_a_folder_is_not_taken_for_a_file_nor_a_file_for_a_folder(
    words: list[object], run: Run, tmp_path: Path
) -> None:
    (tmp_path / "items").write_text("years")
    (tmp_path / "grid.json").mkdir()
    (tmp_path / "grid.json/thesis.txt").write_text("years")
    ended = run(*words)
    assert ended.code == 2
    assert "items is a file; --grid" in ended.stderr
    assert "grid.json is a folder; choose another path" in ended.stderr
    assert (tmp_path / "items").read_text() == (tmp_path / "grid.json/thesis.txt").read_text() == "years"


def test_what_another_stage_made_is_not_replaced(words: list[object], run: Run, tmp_path: Path) -> None:
    assert run(*words).code == 0
    item = tmp_path / "items/A.geojson"
    before = item.read_bytes()
    ended = run("fetch", "--item", item, "--scene", tmp_path / "items", "--catalog", words[2])
    assert ended.code == 2
    assert "items holds what search made" in ended.stderr
    assert item.read_bytes() == before


def test_a_stage_replaces_what_it_made_also_where_an_engine_took_a_part_away(
    words: list[object], run: Run, tmp_path: Path
) -> None:
    (tmp_path / "items").mkdir()
    assert run(*words).code == 0
    # Snakemake removes the file that stands for the folder before the job runs again.
    (tmp_path / "items/manifest.json").unlink()
    assert run(*words).code == 0
    (tmp_path / "items.run.json").unlink()
    assert run(*words).code == 0
    assert read_json(tmp_path / "items.run.json")["status"] == "completed"
