"""The gallery: each example is on its page or listed as not shown, and the page shows what the runs recorded."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from dev import gallery
from dev.gallery_runs import EXAMPLES, NOT_SHOWN, SHOWN

PAGE = gallery.PAGE.read_text()
LARGEST = 40_000


def test_every_example_config_is_shown_or_listed_with_a_reason() -> None:
    on_page = {Path(example.source).stem for example in SHOWN if example.source.startswith("config/examples/")}
    assert not on_page & NOT_SHOWN.keys()
    assert on_page | NOT_SHOWN.keys() == {path.stem for path in EXAMPLES.glob("*.yaml")}
    section, listed = PAGE.split("## Not shown")
    assert all(f"(../config/examples/{name}.yaml)" in section for name in on_page)
    assert all(f"[{name}](../config/examples/{name}.yaml)" in listed for name in NOT_SHOWN)


def test_every_picture_of_the_page_is_a_small_png_and_none_is_left_over() -> None:
    names = re.findall(r"!\[[^\]]*\]\(gallery/([\w-]+\.png)\)", PAGE)
    assert sorted(names) == sorted(path.name for path in gallery.PICTURES.glob("*.png"))
    assert [f"{example.name}.png" for example in SHOWN] == names
    for name in names:
        assert (gallery.PICTURES / name).stat().st_size <= LARGEST, name
        with Image.open(gallery.PICTURES / name) as picture:
            assert (picture.format, picture.width) == ("PNG", 360), name


def test_page_and_strip_are_rendered_from_the_record_of_the_runs() -> None:
    records = json.loads(gallery.RECORD.read_text())
    assert [*records] == [example.name for example in SHOWN]
    assert gallery.page(records) == PAGE
    front = gallery.FRONT.read_text()
    assert gallery.strip(front) == front
    assert all(f"](gallery.md#{example.name})" in front for example in SHOWN)


@pytest.mark.parametrize("name", [example.name for example in SHOWN])
def test_plan_and_run_of_an_example_have_the_same_inodes_and_bytes_within_10_percent(name: str) -> None:
    record = json.loads(gallery.RECORD.read_text())[name]
    inodes, size, _ = record["planned"]
    assert [inodes, size] == pytest.approx(record["written"], rel=0.1)


def test_a_page_of_other_scores_differs() -> None:
    records = json.loads(gallery.RECORD.read_text())
    records["demo"]["scores"][0][2] += 0.1
    assert gallery.page(records) != PAGE


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.97861, None, None), "0.979"),
        ((0.99173, 0.989226, 0.993655), "0.992 (0.989 to 0.994)"),
        ((None, None, None), "-"),
    ],
)
def test_a_score_has_its_interval_if_any(values: tuple[float | None, float | None, float | None], text: str) -> None:
    assert gallery.score(*values) == text


def test_scenes_that_are_made_up_are_called_that() -> None:
    for name in ("sentinel-1-rtc", "two-zones"):
        card = re.split(rf"\n## {name}\n", PAGE)[1].partition("\n## ")[0]
        assert "**made-up scenes**" in card, name


@pytest.mark.exhaustive
def test_an_example_runs_to_its_picture_and_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "PICTURES", tmp_path / "pictures")
    monkeypatch.setattr(gallery, "RECORD", tmp_path / "pictures/results.json")
    gallery.run_all(["two-zones"], tmp_path)
    record = json.loads(gallery.RECORD.read_text())["two-zones"]
    committed = json.loads((gallery.DOCS / "gallery/results.json").read_text())["two-zones"]
    times = {"wall_s", "cpu_s", "load", "planned", "written"}
    assert {key: value for key, value in record.items() if key not in {*times, "scores"}} == {
        key: value for key, value in committed.items() if key not in {*times, "scores"}
    }
    assert [score[:2] for score in record["scores"]] == [score[:2] for score in committed["scores"]]
    assert record["wall_s"] > 0
    assert record["planned"][:2] == pytest.approx(record["written"], rel=0.1)
    assert record["scores"][0][2] > 0.95
    with Image.open(tmp_path / "pictures/two-zones.png") as picture:
        assert picture.width == 360


def test_no_table_has_more_columns_than_the_page_shows_at_1400_pixels() -> None:
    widths = {line.count(" | ") + 1 for line in PAGE.splitlines() if line.startswith("| ")}
    assert max(widths) <= 5
