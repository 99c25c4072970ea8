"""What a late stage needs is asked before a run: `check` and `plan` refuse what will fail, and warn of the rest."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import write_features
from chip_files import write_world
from pyproj import Transformer
from scenery import CRS, LEFT, STEP, TOP, Catalog, Run, write_config, write_stripes
from shapely.geometry import Point, box
from shapely.geometry.base import BaseGeometry

from eopipe.config import check
from eopipe.errors import UsageError

SHAPE = (96, 160)
FIELDS = {"source": "fields.geojson", "attribute": "class"}
NO_VAL = {"fractions": [0.6, 0.0, 0.4]}
ONE_DATE = {"method": "temporal", "dates": ["2023-06-15"]}
TEST_TILE = {"method": "group", "by": "tile", "test_groups": ["T1"]}
BY_POLYGON = {"method": "group", "by": "polygon"}
TRIALS = {"space": {"width": [8, 16]}}
NONE_TO_COMPARE = "trials are compared on validation places, and there are none: "
ASK_FOR_SOME = "the split asks for none; raise the second of split.fractions"


def write_shapes(path: Path, shapes: list[BaseGeometry], **properties: str) -> None:
    """Shapes of pixels (column, row from the top) as GeoJSON in degrees."""
    change = Transformer.from_crs(CRS, "EPSG:4326", always_xy=True)
    rows = []
    for shape in shapes:
        west, north, east, south = shape.bounds
        corners = change.transform([LEFT + STEP * west, LEFT + STEP * east], [TOP - STEP * south, TOP - STEP * north])
        (west, east), (south, north) = corners
        placed = Point(west, south) if shape.geom_type == "Point" else box(west, south, east, north)
        rows.append((placed, properties))
    write_features(path, *rows)


@pytest.fixture
def folder(tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    catalog.add_months(SHAPE, 3)
    catalog.write()
    write_stripes(tmp_path / "labels.tif", SHAPE, 2)
    cells = [box(x, y, x + 8, y + 8) for x in range(0, 160, 16) for y in range(0, 96, 16)]
    write_shapes(tmp_path / "fields.geojson", cells[::2], date="2021-06-01", **{"class": "a"})
    write_shapes(tmp_path / "others.geojson", cells[1::2], date="2021-06-01", **{"class": "b"})
    both = [json.loads((tmp_path / name).read_text()) for name in ("fields.geojson", "others.geojson")]
    both[0]["features"] += both[1]["features"]
    (tmp_path / "fields.geojson").write_text(json.dumps(both[0]))
    write_shapes(tmp_path / "zones.geojson", [box(0, 0, 20, 20)], title="north")
    write_shapes(tmp_path / "points.geojson", [Point(5, 5)], name="north")
    write_shapes(tmp_path / "far.geojson", [box(9000, 0, 9020, 20)], name="east")
    return tmp_path


# Refused wherever a config is read, so that no run begins.
OF_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"split": NO_VAL, "trials": TRIALS}, NONE_TO_COMPARE + ASK_FOR_SOME),
    ({"split": NO_VAL, "trials": TRIALS | {"rungs": [0.5]}}, NONE_TO_COMPARE + ASK_FOR_SOME),
    ({"split": ONE_DATE, "trials": TRIALS}, f"{NONE_TO_COMPARE}the split asks for none; name two split.dates"),
    ({"split": TEST_TILE, "trials": TRIALS}, f"{NONE_TO_COMPARE}split.test_groups are given and split.val_groups are"),
    ({"trials": TRIALS, "choose": {"score": "rmse"}}, "choose.score is rmse, which task segmentation does not have"),
    ({"members": [{"seed": 1}, {"seed": 1}]}, "members has the same training twice, and choose refuses equal weights"),
    ({"members": [{"seed": 0, "width": 16}, {"seed": 0}]}, "members has the same training twice"),
    ({"split": BY_POLYGON}, "split.by polygon needs shapes: set label.source to a vector"),
    ({"label": {"source": None, "asset": "scl"}, "split": BY_POLYGON}, "split.by polygon needs shapes"),
]


@pytest.mark.parametrize(("changes", "sentence"), OF_SETTINGS)
def test_settings_without_which_a_late_stage_fails_are_refused_at_every_door(
    folder: Path, run: Run, changes: dict[str, Any], sentence: str
) -> None:
    config = write_config(folder, **changes)
    with pytest.raises(UsageError) as caught:
        check(config)
    assert sentence in str(caught.value)
    completed = run("check").ends(2, sentence)
    assert completed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"split": NO_VAL},
        {"trials": TRIALS, "choose": {"score": "kappa"}},
        # Without trials it ranks nothing.
        {"choose": {"score": "rmse"}},
        {"members": [{"seed": 1}, {"seed": 2}]},
        {"members": 2},
        {"label": FIELDS, "split": BY_POLYGON},
        {"split": {"method": "temporal", "dates": ["2023-06-15", "2023-06-20"]}, "trials": TRIALS},
    ],
)
def test_settings_with_all_that_late_stages_need_are_accepted(folder: Path, changes: dict[str, Any]) -> None:
    check(write_config(folder, **changes))


@pytest.mark.parametrize(
    ("products", "sentence"),
    [
        ({"zones": "zones.geojson"}, "products.zones, with zone_name name: zones.geojson has no attribute name; it"),
        ({"zones": "points.geojson"}, "points.geojson has no polygons, so it has no zones"),
        ({"zones": "far.geojson"}, "no zone of far.geojson is in the area of the scenes"),
        ({"zones": "zones.geojson", "zone_name": "title"}, ""),
    ],
)
@pytest.mark.parametrize("command", ["check", "plan"])
def test_zones_that_products_cannot_use_are_refused_before_the_map(
    folder: Path, run: Run, products: dict[str, Any], sentence: str, command: str
) -> None:
    write_config(folder, with_products=True, products=products)
    run(command).ends(0 if not sentence else 2 if command == "check" else 3, sentence)
    # Nothing reads them without products.
    write_config(folder, products=products)
    assert run(command).code == 0


RATES = "and hardly any model trains beyond 1e-06 to 0.1"
WARNINGS: list[tuple[dict[str, Any], str]] = [
    ({"products": {"minimum_mapping_unit_ha": 1.0}}, "the section products has no effect without with_products: true"),
    ({"members": 1}, "members: 1 is a single training and no ensemble"),
    ({"train": {"learning_rate": 4.0}}, f"train.learning_rate is 4, {RATES}"),
    ({"trials": {"space": {"learning_rate": [0.004, 4.0]}}}, f"train.learning_rate is 4, {RATES}"),
    ({"members": [{"seed": 1}, {"learning_rate": 1e-9}]}, f"train.learning_rate is 1e-09, {RATES}"),
    ({"train": {"epochs": 100_000}}, "train.epochs is 100000, and hardly any model trains beyond 1 to 1000"),
    ({"train": {"patience": 3}, "split": NO_VAL}, "train.patience ends a training by its validation places, and there"),
    ({"label": FIELDS | {"dates": "2021"}}, "label.dates 2021 has no day of the scenes (2023-05-01 to 2023-07-01)"),
    ({"label": FIELDS | {"dates": "date=2021"}}, "label.dates date=2021 has no day of the scenes"),
]


@pytest.mark.parametrize(("changes", "sentence"), WARNINGS)
def test_what_does_not_fail_and_is_hardly_meant_is_a_warning_once(
    folder: Path, run: Run, changes: dict[str, Any], sentence: str
) -> None:
    write_config(folder, **changes)
    completed = run("check").ends(0)
    assert completed.stdout.count(f"warning: {sentence}") == 1, completed.stdout


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"with_products": True, "products": {"minimum_mapping_unit_ha": 1.0}},
        {"train": {"learning_rate": 0.01, "patience": 3}},
        # A linear model is fitted.
        {"train": {"architecture": "linear", "learning_rate": 4.0}},
        {"label": FIELDS | {"dates": "2021/2023"}, "search": {}},
        {"label": FIELDS | {"dates": "2020/2023-05-01"}},
    ],
)
def test_what_is_meant_is_no_warning(folder: Path, run: Run, changes: dict[str, Any]) -> None:
    write_config(folder, **changes)
    completed = run("check")
    assert (completed.code, "warning" in completed.stdout) == (0, False), completed.stdout + completed.stderr


def test_dates_of_labels_are_compared_with_the_dates_of_a_search_that_only_a_server_knows(
    folder: Path, run: Run
) -> None:
    server = {"catalog": None, "url": "https://stac.example.org/v1"}
    for datetime, is_other in (("2023-05-01/2023-09-30", True), ("2020/2023", False), ("2021-12-31/2023", False)):
        write_config(folder, search=server | {"datetime": datetime}, label=FIELDS | {"dates": "2021"})
        completed = run("check").ends(0)
        assert ("label.dates 2021 has no day of the scenes" in completed.stdout) == is_other, datetime


def test_a_plan_refuses_trials_where_no_chip_fits_the_validation_places(folder: Path, run: Run) -> None:
    narrow = {"fractions": [0.6, 0.05, 0.35]}
    write_config(folder, split=narrow, train={"patience": 3})
    completed = run("plan").ends(0)
    assert "warning: train.patience ends a training by its validation places, and there are none: " in completed.stdout
    write_config(folder, split=narrow, trials=TRIALS)
    run("plan").ends(3, f"{NONE_TO_COMPARE}the val split has no chip", "16 pixels do not fit into its strip of 8")
    assert any(NONE_TO_COMPARE in text for text in json.loads((folder / "plan/plan.json").read_text())["stops"])
    write_config(folder, trials=TRIALS)
    assert run("plan").code == 0


GROUPS = {"method": "group", "by": "column", "attribute": "group", "test_groups": ["z01"], "val_groups": ["z02"]}


@pytest.fixture
def chips(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose run has packed a chip set, in twelve groups."""
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path, chips=1)
    words = ("--images", "images/*.tif", "--masks", "masks/*.tif", "--classes", "land", "water", "--group", "^[^-]+")
    assert run("import", "set", *words).code == 0
    return tmp_path


def of_chips(folder: Path, split: dict[str, Any], **changes: Any) -> None:
    section = {"images": "images/*.tif", "masks": "masks/*.tif", "classes": ["land", "water"], "group": "^[^-]+"}
    config = {"chip_set": "set", "split": split, "train": {"depth": 1}, "import": section}
    write_config(folder, config, **changes)


def test_trials_on_a_chip_set_need_groups_for_validation(chips: Path, run: Run) -> None:
    of_chips(chips, {name: value for name, value in GROUPS.items() if name != "val_groups"}, trials=TRIALS)
    for command in ("check", "plan"):
        run(command).ends(2, f"{NONE_TO_COMPARE}split.test_groups are given and split.val_groups are not")
    of_chips(chips, GROUPS, trials=TRIALS)
    assert run("check").code == 0


def test_a_chip_set_of_other_settings_will_be_packed_again_and_its_split_is_not_judged_by_the_old_one(
    chips: Path, run: Run
) -> None:
    of_chips(chips, GROUPS)
    completed = run("check")
    assert (completed.code, "packed" in completed.stdout) == (0, False), completed.stdout + completed.stderr
    # The groups have other names then.
    renamed = GROUPS | {"test_groups": ["01"], "val_groups": ["02"]}
    of_chips(chips, renamed)
    assert "z01" in run("check").stderr
    of_chips(chips, renamed, **{"import": {"group": "[0-9]+"}})
    completed = run("check")
    sentence = "set is packed again by the run, for import.group changed, so its split is unchecked; `eopipe run "
    assert completed.code == 0, completed.stderr
    assert f"warning: {sentence}set.run.json` packs it alone" in completed.stdout
    run("plan").ends(2, sentence)
