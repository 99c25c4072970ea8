"""Samples of maps as files, their labels, and the areas that follow: by the commands that a user types."""

import csv
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyogrio
import pyogrio.raw
import pytest
from builders import grid_of, stage, write_map
from odc.geo.geobox import GeoBox
from scenery import Run

from eopipe import cli
from eopipe.areas.sample_files import read_design
from eopipe.arrays import AnyArray
from eopipe.errors import RequirementError
from eopipe.evaluation.requirements import check_requirements
from eopipe.labels.write import from_to, from_to_names
from eopipe.text_files import read_json

CLASSES = ("crop", "forest", "water")
SHAPE = (120, 100)


def truth_of(shape: tuple[int, int] = SHAPE, seed: int = 0) -> AnyArray:
    """Classes in patches: a third crop, most forest, and little water."""
    rows, columns = np.indices(shape)
    field = np.sin(rows / 9) + np.cos(columns / 7) + np.random.default_rng(seed).normal(0, 0.3, shape)
    return np.select([field > 0.6, field > -1.75], [np.uint8(0), np.uint8(1)], np.uint8(2))


def errors_in(truth: AnyArray, share: float = 0.1, seed: int = 1) -> AnyArray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(truth.shape) < share, rng.integers(0, 3, truth.shape), truth).astype(np.uint8)


def legend(names: tuple[str, ...] = CLASSES) -> str:
    return ", ".join(f"{number}={name}" for number, name in enumerate(names))


def a_map(path: Path, numbers: AnyArray, grid: GeoBox | None = None, **tags: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    tags = {"classes": legend(), "scenes": "s"} | tags
    return write_map(path, numbers[None], grid or grid_of(numbers.shape), names=("class",), **tags)


def draw(folder: Path, *options: object) -> int:
    return cli.main(["sample", *map(str, options), "--to", str(folder)])


def points(path: Path) -> dict[int, tuple[float, float]]:
    import shapely

    _, _, wkb, (ids,) = pyogrio.raw.read(path, layer="sample", columns=["id"])
    shapes = shapely.from_wkb(wkb)
    return dict(zip(ids.tolist(), zip(shapely.get_x(shapes), shapely.get_y(shapes), strict=True), strict=True))


def label(path: Path, label_of: Callable[[dict[str, Any]], str | float | None]) -> None:
    """Label a GeoPackage in its place, as QGIS saves it: by the row of each pixel in the design."""
    design = read_json(path.with_name("sample.json"))
    with closing(sqlite3.connect(path)) as file, file:
        for name in ("ST_IsEmpty", "ST_MinX", "ST_MaxX", "ST_MinY", "ST_MaxY"):
            file.create_function(name, 1, lambda _: 0)
        for pixel in design["pixels"]:
            file.execute("UPDATE sample SET label = ? WHERE id = ?", (label_of(pixel), pixel["id"]))


def estimate(folder: Path, maps: list[Path], *options: object) -> dict[str, Any]:
    files = ("--areas", folder / "areas.json", "--page", folder / "areas.html")
    assert stage("estimate", "--classes", *maps, *options, *files) == 0
    document: dict[str, Any] = read_json(folder / "areas.json")
    return document


def as_mapped(pixel: dict[str, Any]) -> str:
    return CLASSES[pixel["mapped"]]


def labelled(folder: Path, label_of: Callable[[dict[str, Any]], str | float | None], *maps_and_options: object) -> Path:
    """A sample of maps, drawn into the folder `s`, with its labels."""
    assert draw(folder / "s", *maps_and_options) == 0
    label(folder / "s/sample.gpkg", label_of)
    return folder / "s/sample.gpkg"


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    return a_map(tmp_path / "results/maps/mosaic/classes.tif", errors_in(truth_of()))


def test_a_sample_has_pixels_of_each_class_once_and_the_same_seed_draws_them_again(
    tmp_path: Path, mapped: Path
) -> None:
    assert draw(tmp_path / "a", tmp_path / "results", "--number", 200, "--minimum", 30) == 0
    assert draw(tmp_path / "b", mapped, "--number", 200, "--minimum", 30) == 0
    assert draw(tmp_path / "c", mapped, "--number", 200, "--minimum", 30, "--seed", 1) == 0
    files = {name: [(tmp_path / folder / name).read_bytes() for folder in "abc"] for name in (
        "sample.json", "sample.csv", "sample.gpkg"
    )}  # fmt: skip
    assert all(first == again != other for first, again, other in files.values())
    design, numbers = read_json(tmp_path / "a/sample.json"), errors_in(truth_of())
    places = {(pixel["row"], pixel["column"]) for pixel in design["pixels"]}
    assert len(places) == len(design["pixels"]) == 200
    for pixel in design["pixels"]:
        assert numbers[pixel["row"], pixel["column"]] == pixel["mapped"]
        stratum = design["strata"][pixel["stratum"]]
        assert stratum["name"] == CLASSES[pixel["mapped"]]
        assert pixel["inclusion_probability"] == stratum["sampled"] / stratum["pixels"]
    assert [s["pixels"] for s in design["strata"]] == np.bincount(numbers.ravel()).tolist()
    assert min(s["sampled"] for s in design["strata"]) >= 30
    # Who labels in the order of the file must not be led by it.
    order = [pixel["stratum"] for pixel in sorted(design["pixels"], key=lambda pixel: pixel["id"])]
    assert sum(a != b for a, b in pairwise(order)) > 60


def test_what_a_map_says_is_in_the_files_to_label_only_where_it_is_asked_for(tmp_path: Path, mapped: Path) -> None:
    assert draw(tmp_path / "blind", mapped, "--number", 150) == 0
    assert draw(tmp_path / "shown", mapped, "--number", 150, "--show-class") == 0
    for folder, expected in (("blind", False), ("shown", True)):
        names = pyogrio.read_info(tmp_path / folder / "sample.gpkg", layer="sample")["fields"].tolist()
        assert names[:4] == ["id", "label", "comment", "inclusion_probability"]
        assert ("mapped" in names) == expected
        heads = (tmp_path / folder / "sample.csv").read_text().splitlines()[0]
        assert heads == "LON,LAT,PLOTID,label" + ",mapped" * expected
    assert b"forest\x00" not in (tmp_path / "blind/sample.csv").read_bytes()


def test_the_geopackage_has_a_pick_list_a_style_and_the_design_and_keeps_them_when_it_is_saved(
    tmp_path: Path, mapped: Path
) -> None:
    path = labelled(tmp_path, as_mapped, mapped, "--number", 150)
    with closing(sqlite3.connect(path)) as file:
        domain = file.execute("SELECT value FROM gpkg_data_column_constraints WHERE constraint_type = 'enum'")
        assert [value for (value,) in domain] == list(CLASSES)
        column = file.execute("SELECT constraint_name FROM gpkg_data_columns WHERE column_name = 'label'").fetchall()
        assert column == [("classes",)]
        styles = dict(file.execute("SELECT f_table_name, styleQML FROM layer_styles WHERE useAsDefault = 1").fetchall())
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert 'type="ValueMap"' in styles["sample"]
    assert all(f'value="{name}"' in styles["sample"] for name in CLASSES)
    assert "SimpleLine" in styles["pixels"]
    design = read_design(path)
    assert design
    assert design.model_dump(mode="json") == read_json(path.with_name("sample.json"))
    # Pixels are where their points are.
    _, _, wkb, _ = pyogrio.raw.read(path, layer="pixels")
    import shapely

    centres = shapely.centroid(shapely.from_wkb(wkb))
    expected = [points(path)[number] for number in range(1, 151)]
    np.testing.assert_allclose(np.column_stack([shapely.get_x(centres), shapely.get_y(centres)]), expected, atol=1e-7)


def test_labels_are_never_drawn_over(tmp_path: Path, mapped: Path, run: Run) -> None:
    path = labelled(tmp_path, lambda _: "water", mapped, "--number", 150)
    before = path.read_bytes()
    run("sample", mapped, "--number", 150, "--to", tmp_path / "s").ends(2, "sample.gpkg")
    assert path.read_bytes() == before


def test_estimated_areas_are_those_of_the_truth_within_their_intervals(tmp_path: Path, mapped: Path) -> None:
    truth = truth_of()
    path = labelled(
        tmp_path, lambda pixel: CLASSES[truth[pixel["row"], pixel["column"]]], mapped, "--number", 400, "--seed", 1
    )
    document = estimate(tmp_path, [mapped], "--sample", path)
    hectares = dict(zip(CLASSES, np.bincount(truth.ravel()) / truth.size * document["hectares"], strict=True))
    for name in CLASSES:
        low, high = document["areas"][name]["hectares"]["interval"]
        assert low < hectares[name] < high
        assert document["areas"][name]["mapped_hectares"] != pytest.approx(hectares[name], rel=1e-3)
    agrees = float((truth == errors_in(truth)).mean())
    assert document["overall_accuracy"]["interval"][0] < agrees < document["overall_accuracy"]["interval"][1]
    assert np.sum(document["error_matrix"]) == pytest.approx(1)
    assert np.sum(document["counts"]) == document["labelled"] == 400
    page = (tmp_path / "areas.html").read_text()
    assert all(name in page for name in CLASSES)
    assert "Olofsson" in page


def test_a_map_of_change_gives_the_area_of_each_change(tmp_path: Path) -> None:
    names, before = from_to_names(CLASSES), truth_of()
    # Some forest becomes crop.
    cleared = (before == 1) & (np.indices(SHAPE)[1] > 60)
    truth = from_to(before, np.where(cleared, np.uint8(0), before), len(CLASSES))
    numbers = np.where(np.random.default_rng(2).random(SHAPE) < 0.1, 3 * before + before, truth).astype(np.uint8)
    change = a_map(tmp_path / "classes.tif", numbers, classes=legend(names))
    assert draw(tmp_path / "s", change, "--number", 400, "--minimum", 40) == 0
    strata = {stratum["name"] for stratum in read_json(tmp_path / "s/sample.json")["strata"]}
    assert strata == {names[number] for number in np.unique(numbers)}
    label(tmp_path / "s/sample.gpkg", lambda pixel: names[truth[pixel["row"], pixel["column"]]])
    document = estimate(tmp_path, [change], "--sample", tmp_path / "s/sample.gpkg")
    of_change = document["areas"][names[1 * len(CLASSES) + 0]]
    hectares = cleared.mean() * document["hectares"]
    low, high = of_change["hectares"]["interval"]
    assert of_change["mapped_hectares"] < low < hectares < high
    never = document["areas"][names[2 * len(CLASSES) + 0]]["hectares"]
    assert (never["estimate"], never["standard_error"]) == (0, None)


def test_a_table_of_collect_earth_online_gives_the_same_as_the_geopackage(tmp_path: Path, mapped: Path) -> None:
    truth = truth_of()
    assert draw(tmp_path / "s", mapped, "--number", 200) == 0
    design = read_json(tmp_path / "s/sample.json")
    names = {pixel["id"]: CLASSES[truth[pixel["row"], pixel["column"]]] for pixel in design["pixels"]}
    label(tmp_path / "s/sample.gpkg", lambda pixel: names[pixel["id"]])
    with (tmp_path / "downloaded.csv").open("w", newline="") as file:
        rows = ([900 + n, 12.0, 45.0, n, names[n].upper()] for n in sorted(names, reverse=True))
        csv.writer(file).writerows([["plotid", "center_lon", "center_lat", "pl_plotid", "Land cover"], *rows])
    table = ("--sample", tmp_path / "downloaded.csv", "--label-column", "Land cover")
    of_table = estimate(tmp_path, [mapped], *table, "--sample-design", tmp_path / "s/sample.json")
    of_package = estimate(tmp_path, [mapped], "--sample", tmp_path / "s/sample.gpkg")
    assert of_table.pop("interpreters") == ["downloaded.csv"]
    assert of_package.pop("interpreters") == ["sample.gpkg"]
    assert of_table == of_package


def test_a_sample_of_an_old_map_serves_a_new_one(tmp_path: Path, mapped: Path) -> None:
    truth = truth_of()
    better = a_map(tmp_path / "new.tif", errors_in(truth, 0.02, seed=5))
    sample = labelled(tmp_path, lambda pixel: CLASSES[truth[pixel["row"], pixel["column"]]], mapped, "--number", 600)
    old, new = (estimate(tmp_path, [path], "--sample", sample) for path in (mapped, better))
    areas = [{name: row["hectares"] for name, row in each["areas"].items()} for each in (old, new)]
    assert areas[0] == areas[1]
    assert old["overall_accuracy"]["estimate"] < 0.95 < new["overall_accuracy"]["estimate"]
    numbers = errors_in(truth, 0.02, seed=5)
    low, high = new["areas"]["forest"]["users_accuracy"]["interval"]
    assert low < float((truth[numbers == 1] == 1).mean()) < high
    assert "another map" in (tmp_path / "areas.html").read_text()


def test_interpreters_are_counted_by_majority_and_compared(tmp_path: Path, mapped: Path) -> None:
    assert draw(tmp_path / "s", mapped, "--number", 150) == 0
    shifts_of = {"one": {3: 1, 4: 1}, "two": {4: 2, 5: 2}, "three": {6: 1}}
    for name, shifts in shifts_of.items():
        path = tmp_path / f"s/{name}.gpkg"
        path.write_bytes((tmp_path / "s/sample.gpkg").read_bytes())
        label(path, lambda p, shifts=shifts: CLASSES[(p["mapped"] + shifts.get(p["id"], 0)) % 3])
    document = estimate(tmp_path, [mapped], "--sample", *(tmp_path / f"s/{name}.gpkg" for name in shifts_of))
    # Three labels for one pixel have no majority; a single other label is outvoted.
    assert document["disagreed"] == [4]
    assert document["labelled"] == 149
    assert document["overall_accuracy"]["estimate"] == 1
    pairs = {tuple(row["interpreters"]): row for row in document["agreement"]}
    assert pairs["one.gpkg", "two.gpkg"]["agreement"] == round(147 / 150, 6)
    assert 0.9 < pairs["one.gpkg", "two.gpkg"]["kappa"] < 1
    assert any("4" in note for note in document["notes"])


def test_pixels_without_a_label_are_named_and_the_others_of_their_stratum_stand_for_them(
    tmp_path: Path, mapped: Path
) -> None:
    sample = labelled(tmp_path, lambda p: None if p["id"] <= 20 else CLASSES[p["mapped"]], mapped, "--number", 150)
    document = estimate(tmp_path, [mapped], "--sample", sample)
    assert (document["labelled"], document["unlabelled"]) == (130, 20)
    assert document["areas"]["crop"]["share"]["estimate"] == pytest.approx(
        float((errors_in(truth_of()) == 0).mean()), abs=1e-6
    )
    assert any("20 sampled pixels have no label" in note for note in document["notes"])


def test_ground_that_two_cells_show_is_drawn_in_one_of_them(tmp_path: Path) -> None:
    west, east = truth_of((40, 40)), truth_of((40, 30), seed=2)
    west[:, 30:], east[:, :5] = 255, 255
    maps = [
        a_map(tmp_path / "w.tif", west, grid_of((40, 40)), cell="utm33n"),
        a_map(tmp_path / "e.tif", east, grid_of((40, 30), left=900_000.0), cell="utm34n"),
    ]
    sample = labelled(tmp_path, as_mapped, *maps, "--number", 200, "--minimum", 20)
    design = read_json(tmp_path / "s/sample.json")
    assert sum(stratum["pixels"] for stratum in design["strata"]) == 40 * 30 + 40 * 25
    assert {pixel["map"] for pixel in design["pixels"]} == {0, 1}
    arrays = west, east
    assert all(arrays[p["map"]][p["row"], p["column"]] == p["mapped"] for p in design["pixels"])
    assert estimate(tmp_path, maps, "--sample", sample)["outside"] == 0


def test_in_degrees_pixels_in_the_north_count_less(tmp_path: Path) -> None:
    numbers = np.zeros((400, 20), np.uint8)
    numbers[:200] = 1
    grid = grid_of(numbers.shape, 0.1, 10.0, 70.0, "EPSG:4326")
    path = a_map(tmp_path / "m.tif", numbers, grid)
    sample = labelled(tmp_path, as_mapped, path, "--number", 300)
    design = {row["name"]: row for row in read_json(tmp_path / "s/sample.json")["strata"]}
    assert design["forest"]["pixels"] == design["crop"]["pixels"]
    assert design["forest"]["hectares"] < 0.8 * design["crop"]["hectares"]
    areas = estimate(tmp_path, [path], "--sample", sample)["areas"]
    for name in ("forest", "crop"):
        assert areas[name]["hectares"]["estimate"] == pytest.approx(design[name]["hectares"], rel=1e-6)
        assert areas[name]["mapped_hectares"] == pytest.approx(design[name]["hectares"], rel=1e-6)


def test_the_mean_of_a_map_of_values_is_corrected_by_the_sample(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    truth = rng.gamma(2, 20, SHAPE).astype(np.float32)
    biased = (0.8 * truth + rng.normal(5, 4, SHAPE)).astype(np.float32)
    biased[0, :10] = np.nan
    path = write_map(
        tmp_path / "v.tif", biased[None], grid_of(SHAPE), float("nan"), ("height",), task="regression", scenes="s"
    )
    sample = labelled(tmp_path, lambda p: float(truth[p["row"], p["column"]]), path, "--number", 400)
    design = read_json(tmp_path / "s/sample.json")
    assert len(design["strata"]) == 5
    document = estimate(tmp_path, [path], "--sample", sample)
    exact = float(truth[np.isfinite(biased)].mean())
    assert abs(document["mapped_mean"] - exact) > 2
    assert document["mean"]["interval"][0] < exact < document["mean"]["interval"][1]
    assert document["mean"]["standard_error"] < 0.5
    assert document["bias"]["estimate"] == pytest.approx(
        document["mapped_mean"] - document["mean"]["estimate"], rel=1e-4
    )
    assert "height" in (tmp_path / "areas.html").read_text()


@pytest.mark.parametrize(("options", "names"), [
    (["--number", "20"], ("minimum", "50", "--number")),
    (["--number", "300", "--standard-error", "0.1"], ("--number", "--standard-error")),
    (["--number", "99999"], ("12000", "--number")),
    (["--standard-error", "0.02", "--expected-accuracy", "wood=0.7"], ("wood", "crop, forest, water")),
    (["--standard-error", "0.02", "--expected-accuracy", "80"], ("80", "0.8")),
])  # fmt: skip
def test_a_sample_that_cannot_be_drawn_is_refused_and_writes_nothing(
    tmp_path: Path, mapped: Path, run: Run, options: list[str], names: tuple[str, ...]
) -> None:
    run("sample", mapped, *options, "--to", tmp_path / "s").ends(2, *names)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(("tags", "second", "names"), [
    ({}, {"scenes": "t"}, ("same ground", "m.tif", "n.tif")),
    ({"places": "test"}, None, ("test places", "predict")),
    ({"classes": ""}, None, ("m.tif", "classes")),
])  # fmt: skip
def test_maps_that_are_no_population_are_refused(
    tmp_path: Path, run: Run, tags: dict[str, str], second: dict[str, str] | None, names: tuple[str, ...]
) -> None:
    maps = [a_map(tmp_path / "m.tif", truth_of(), **tags)]
    maps += [] if second is None else [a_map(tmp_path / "n.tif", truth_of(), **second)]
    run("sample", *maps, "--number", 200, "--to", tmp_path / "s").ends(3, *names)


def renamed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("ALTER TABLE sample RENAME COLUMN label TO class")


def of_another_seed(path: Path) -> None:
    label(path, as_mapped)
    design = read_json(path.with_name("sample.json"))
    design["pixels"][0]["id"] = 9999
    path.with_name("sample.json").write_text(json.dumps(design))


def of_other_classes(path: Path) -> None:
    label(path, as_mapped)
    a_map(path.parents[1] / "o.tif", truth_of(), classes=legend(("crop", "forest", "ice")))


POINT = "longitude,latitude,class\n15.0,0.5,crop\n"


@pytest.mark.parametrize(("change", "options", "names"), [
    (lambda path: None, {}, ("no label", "label")),
    (lambda path: label(path, lambda p: "forrest" if p["id"] == 7 else as_mapped(p)), {},
     ("id 7", "forrest", "did you mean forest")),
    (lambda path: label(path, lambda p: None if p["stratum"] == 2 else as_mapped(p)), {},
     ("strata water", "label two pixels")),
    (renamed, {}, ("no column label", "class", "--label-column")),
    (lambda path: path.with_name("points.csv").write_text(POINT), {"sample": "s/points.csv"},
     ("points.csv", "no probability sample", "eopipe sample")),
    (of_another_seed, {"sample-design": "s/sample.json"}, ("is not in the design",)),
    (of_other_classes, {"classes": "o.tif"}, ("ice", "water")),
])  # fmt: skip
def test_labels_that_say_nothing_or_are_of_another_sample_or_legend_are_refused(
    tmp_path: Path,
    mapped: Path,
    run: Run,
    change: Callable[[Path], object],
    options: dict[str, str],
    names: tuple[str, ...],
) -> None:
    assert draw(tmp_path / "s", mapped, "--number", 150) == 0
    change(tmp_path / "s/sample.gpkg")
    files = {"classes": mapped, "sample": "s/sample.gpkg", "areas": "areas.json", "page": "areas.html"} | options
    run("estimate", *(word for key, name in files.items() for word in (f"--{key}", tmp_path / name))).ends(3, *names)
    assert not (tmp_path / "areas.json").exists()


def test_a_map_is_held_against_what_is_required_of_its_areas(tmp_path: Path, mapped: Path) -> None:
    truth = truth_of()
    sample = labelled(tmp_path, lambda p: CLASSES[truth[p["row"], p["column"]]], mapped, "--number", 400)
    row = estimate(tmp_path, [mapped], "--sample", sample)["areas"]["forest"]
    error = row["hectares"]["standard_error"] / row["hectares"]["estimate"]
    reached = [f"area_error:forest={1.01 * error}", "users_accuracy:forest=0.8", "overall_accuracy=0.8"]
    check_requirements(reached, None, tmp_path / "areas.json")
    missed = [f"area_error:forest={0.99 * error}", "users_accuracy:water=0.99"]
    with pytest.raises(RequirementError, match=r"area_error of forest is .*at most.*; users_accuracy of water is"):
        check_requirements(missed, None, tmp_path / "areas.json")
