"""The audit finds leaks through labels: places, composites, polygons, bands and autocorrelation; clean splits pass."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import write_features, write_store
from chip_files import made_split
from PIL import Image
from scenery import Completed, Run, covered_area, split_outputs
from shapely import box

from eopipe.arrays import AnyArray, Float64Array
from eopipe.chips.label_leaks import correlation_range
from eopipe.chips.polygons import polygon_numbers, splits_of_pixels
from eopipe.chips.splits import NO_SPLIT, SPLITS, read_split
from eopipe.config import check
from eopipe.errors import UsageError
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
from eopipe.loader.chip_reader import ChipArrays, ChipReader, ChipRequest, chip_sources
from eopipe.reporting.data_tables import gap_rows, gap_text
from eopipe.reporting.decimation import Decimation
from eopipe.reporting.figures import SPLIT_COLORS, rgb
from eopipe.reporting.split_maps import UNUSED_COLOR, split_roles
from eopipe.reporting.wording import describe_test
from eopipe.text_files import read_json, write_json
from eopipe.tiles.grid import grid_json, make_grid
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import NO_LABEL, Tiles

SHAPE, CHIP = (64, 96), 16
GRID = make_grid((0.0, 0.0, SHAPE[1] * 10.0, SHAPE[0] * 10.0), "EPSG:32633", 10.0, (0, 0))
PLACE: dict[str, Any] = {"grid": GRID, "layout": Layout(16, 32)}
STRIPS = ("--method", "west-east", "--fractions", 0.5, 0, 0.5)
DATES = ("--method", "temporal", "--dates", "2020-02-01")
DAYS = {"a": "2020-01-01", "b": "2020-01-09", "c": "2020-03-01"}


def smooth_noise(seed: int, scale: float = 2.0, shape: tuple[int, int] = SHAPE) -> Float64Array:
    """A stationary field with mean 0 and deviation 1, correlated over about `scale` pixels."""
    from scipy.ndimage import gaussian_filter

    field = gaussian_filter(np.random.default_rng(seed).normal(size=shape), scale, mode="wrap")
    return np.asarray((field - field.mean()) / field.std(), np.float64)


def classes(seed: int) -> AnyArray:
    return (smooth_noise(seed) > 0).astype(np.uint8)


def image(label: AnyArray, seed: int) -> AnyArray:
    """Two bands that show the label with noise, and differ from scene to scene."""
    random = np.random.default_rng(seed)
    bands = [1000 + 400.0 * label + random.normal(0, 300, SHAPE) for _ in range(2)]
    return np.stack(bands).clip(0).astype(np.uint16)


def write_tiles(path: Path, scene: str, pixels: AnyArray, **attributes: Any) -> Path:
    options = {"scene": scene, "scaling": (1.0, 0.0), "datetime": DAYS.get(scene)} | PLACE | attributes
    return write_store(path, ("red", "nir", "swir")[: len(pixels)], {"image": pixels}, **options)


def write_labels(path: Path, label: AnyArray, scene: str = "", **arrays: AnyArray) -> Path:
    names = ("value",) if label.dtype.kind == "f" else ("x", "y")
    return write_store(path, names, {"label": label} | arrays, scene=scene, **PLACE)


def split(run: Run, folder: Path, tiles: list[Path], labels: list[Path], *arguments: object) -> Completed:
    return run("split", "--tiles", *tiles, "--labels", *labels, *split_outputs(folder), "--chip", CHIP, *arguments)


def audit_of(folder: Path) -> dict[str, Any]:
    audit: dict[str, Any] = read_json(folder / "split.json")["audit"]
    return audit


# Places.


def scenes(folder: Path, label: AnyArray) -> list[Path]:
    return [write_tiles(folder / f"{n}.zarr", n, image(label, number)) for number, n in enumerate("abc")]


@pytest.mark.parametrize("method", [DATES, ("--method", "group", "--test-groups", "c")])
@pytest.mark.parametrize("stores", ["one for all", "one for each scene"])
@pytest.mark.exhaustive
def test_places_that_are_trained_with_the_same_label_on_other_dates_are_found(
    tmp_path: Path, run: Run, method: tuple[object, ...], stores: str
) -> None:
    label = classes(0)
    tiles = scenes(tmp_path, label)
    labels = [write_labels(tmp_path / f"l{n}.zarr", label, n) for n in ([""] if stores == "one for all" else "abc")]
    completed = split(run, tmp_path, tiles, labels, *method).ends(4)
    message = "labels of a place are the same in both splits: 100.0 % of the test pixels were in train with this label"
    assert f"place (24 times): {message}" in completed.stderr
    assert "train chip of scene a, row 0, column 0 and test chip of scene c, row 0, column 0" in completed.stderr
    assert split(run, tmp_path, tiles, labels, *method, "--allow", "place: new dates are what we map").code == 0
    (finding,) = audit_of(tmp_path)["allowed"]
    assert (finding["kind"], finding["share"], finding["splits"]) == ("place", 1.0, "train-test")
    assert "100.0\u202f% of the test pixels were in the training with the same label on other dates" in describe_test(
        read_split(tmp_path / "split.json")
    )


def test_places_whose_labels_change_with_the_scene_pass(tmp_path: Path, run: Run) -> None:
    layers = {n: classes(number) for number, n in enumerate("abc")}
    tiles = [write_tiles(tmp_path / f"{n}.zarr", n, image(label, 7)) for n, label in layers.items()]
    labels = [write_labels(tmp_path / f"l{n}.zarr", label, n) for n, label in layers.items()]
    split(run, tmp_path, tiles, labels, *DATES).ends(0)
    assert describe_test(read_split(tmp_path / "split.json")) == (
        "All scores are from test scenes, which were not used in training."
    )


@pytest.mark.parametrize(("overlap", "code"), [(0, 0), (16, 4)])
def test_scenes_of_other_places_pass_and_a_partial_overlap_says_its_share(
    tmp_path: Path, run: Run, overlap: int, code: int
) -> None:
    label, columns = classes(0), np.indices(SHAPE)[1]
    valid = {"a": columns < 48 + overlap, "c": columns >= 48}
    tiles = [write_tiles(tmp_path / f"{n}.zarr", n, image(label, number)) for number, n in enumerate("ac")]
    labels = [write_labels(tmp_path / f"l{n}.zarr", label, n, valid=mask) for n, mask in valid.items()]
    completed = split(run, tmp_path, tiles, labels, *DATES).ends(code)
    assert ("33.3 % of the test pixels" in completed.stderr) == bool(overlap)


@pytest.mark.parametrize(("is_same", "code"), [(True, 4), (False, 0)])
def test_values_that_never_change_are_found_and_values_that_do_pass(
    tmp_path: Path, run: Run, is_same: bool, code: int
) -> None:
    values = {n: smooth_noise(0 if is_same else number) for number, n in enumerate("abc")}
    tiles = [write_tiles(tmp_path / f"{n}.zarr", n, image(v, 5)) for n, v in values.items()]
    labels = [write_labels(tmp_path / f"l{n}.zarr", v.astype(np.float32), n) for n, v in values.items()]
    completed = split(run, tmp_path, tiles, labels, *DATES).ends(code)
    assert ("place (24 times)" in completed.stderr) == is_same


@pytest.mark.parametrize(("method", "findings", "text"), [
    ("blocks", [], "All scores are from test areas without training chips."),
    ("random", ["random"], "Test chips were chosen at random among the training chips"),
    ("blocks", ["overlap"], "Some test chips overlap training chips"),
])  # fmt: skip
def test_what_is_said_of_the_test_follows_the_split(method: str, findings: list[str], text: str) -> None:
    allowed = [{"kind": kind, "count": 1, "example": "", "reason": "x"} for kind in findings]
    split_file = made_split(plan={"method": method, "min_valid": 0.5}, audit={"gap_pixels": {}, "allowed": allowed})
    assert describe_test(split_file).startswith(text)


# Composites.


@pytest.mark.parametrize(("sources", "code"), [((["s1", "s2"], ["s2", "s3"]), 4), ((["s1", "s2"], ["s3", "s4"]), 0)])
def test_composites_of_one_scene_in_train_and_test_are_found(
    tmp_path: Path, run: Run, sources: tuple[list[str], list[str]], code: int
) -> None:
    label = classes(0)
    tiles = [
        write_tiles(tmp_path / f"{n}.zarr", n, image(label, number), scenes=sources[number])
        for number, n in enumerate("ac")
    ]
    labels = [write_labels(tmp_path / "l.zarr", label)]
    completed = split(run, tmp_path, tiles, labels, *DATES, "--allow", "place: planted").ends(code)
    pair = "train chip of scene a, row 0, column 0 and test chip of scene c, row 0, column 0"
    assert (f"scene (24 times): {pair} are composites that share scene s2" in completed.stderr) == (code == 4)


# Bands.


def config(**sections: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "search": {"catalog": "sample", "assets": ["blue", "scl"]},
        "preprocess": {"bands": ["blue"], "mask": "none"},
        "label": {"asset": "scl", "classes": ["a", "b"]},
    }
    return {name: values.get(name, {}) | sections.get(name, {}) for name in {*values, *sections}}


def test_an_asset_that_is_label_and_band_is_refused_by_check() -> None:
    check(config())
    with pytest.raises(UsageError, match=r"label\.asset scl is also in preprocess\.bands"):
        check(config(preprocess={"bands": ["blue", "scl"], "mask": "none"}))


def with_band(label: AnyArray, band: AnyArray) -> AnyArray:
    return np.concatenate([image(label, 1), np.asarray(band)[None].astype(np.uint16)])


def band_warnings(folder: Path) -> list[str]:
    """What the audit says of bands."""
    return [warning["example"] for warning in audit_of(folder)["warnings"] if warning["kind"] == "band"]


LABEL = classes(0)
COVER = np.where(LABEL, 80, 20) + np.random.default_rng(0).integers(-19, 20, SHAPE)
FLIPPED = 100.0 * np.where(np.random.default_rng(3).random(SHAPE) < 0.01, 1 - LABEL, LABEL)
EASY = np.stack([1000.0 * LABEL + np.random.default_rng(n).integers(0, 500, SHAPE) for n in range(3)])


@pytest.mark.parametrize(("pixels", "is_leak"), [
    (with_band(LABEL, 7 - 3 * LABEL), True),
    (with_band(LABEL, COVER), True),
    (with_band(LABEL, FLIPPED), False),
    (EASY.astype(np.uint16), False),
], ids=["a copy", "cut at 50", "shows it well", "all show it"])  # fmt: skip
def test_one_band_that_is_the_label_is_a_warning(tmp_path: Path, run: Run, pixels: AnyArray, is_leak: bool) -> None:
    tiles, labels = [write_tiles(tmp_path / "a.zarr", "a", pixels)], [write_labels(tmp_path / "l.zarr", LABEL)]
    split(run, tmp_path, tiles, labels, *STRIPS).ends(0)
    sentence = "band swir gives the label of nearly every test pixel by itself (kappa 1.0000, the next one is "
    assert [text.startswith(sentence) for text in band_warnings(tmp_path)] == [True] * is_leak
    split(run, tmp_path, tiles, labels, *STRIPS, "--allow", "band: it is a mask").ends(0)
    assert band_warnings(tmp_path) == []


def test_a_band_that_is_the_value_is_a_warning(tmp_path: Path, run: Run) -> None:
    value = (20 + 5 * smooth_noise(0)).astype(np.float32)
    labels = [write_labels(tmp_path / "l.zarr", value)]
    for name, band, count in (("copied", 10 * value, 1), ("noisy", 10 * value + 50 * smooth_noise(1), 0)):
        tiles = [write_tiles(tmp_path / f"{name}.zarr", "a", with_band(value / 40, band))]
        assert split(run, tmp_path, tiles, labels, *STRIPS).code == 0
        assert len([text for text in band_warnings(tmp_path) if "coefficient of determination" in text]) == count


# Polygons.


def fields_geojson(path: Path, edge: int, gap: int = 0) -> Path:
    """Squares of `edge` pixels with alternating classes."""
    features = []
    for row in range(0, SHAPE[0], edge):
        for col in range(0, SHAPE[1], edge):
            left, top, width = col * 10, SHAPE[0] * 10 - row * 10, (edge - gap) * 10
            properties = {"class": "xy"[(row // edge + col // edge) % 2]}
            features.append((box(left, top - width, left + width, top), properties))
    return write_features(path, *features, crs="EPSG:32633")


def label_polygons(run: Run, folder: Path, source: Path, *arguments: object) -> Path:
    write_json(folder / "grid.json", grid_json(GRID))
    target = folder / f"{source.stem}.zarr"
    options = ("--grid", folder / "grid.json", "--classes", "x", "y", "--chunk", 16, "--shard", 64)
    assert run("label", *options, "--source", source, "--labels", target, *arguments).code == 0
    return target


def test_labels_of_polygons_have_their_numbers(tmp_path: Path, run: Run) -> None:
    labels = Tiles(label_polygons(run, tmp_path, fields_geojson(tmp_path / "fields.geojson", 16, gap=2)))
    polygons, label = labels.read("polygon"), labels.read("label")
    expected = np.arange(24, dtype=np.int32).reshape(4, 6).repeat(16, 0).repeat(16, 1) + 1
    inside = (np.indices(SHAPE) % 16 < 14).all(0)
    np.testing.assert_array_equal(polygons, np.where(inside, expected, 0))
    np.testing.assert_array_equal(label != 255, inside)


@pytest.mark.parametrize(("edge", "code"), [(16, 0), (32, 4)])
def test_a_polygon_in_two_splits_is_found(tmp_path: Path, run: Run, edge: int, code: int) -> None:
    labels = label_polygons(run, tmp_path, fields_geojson(tmp_path / "fields.geojson", edge))
    tiles = write_tiles(tmp_path / "a.zarr", "a", image(Tiles(labels).read("label"), 1))
    completed = split(run, tmp_path, [tiles], [labels], *STRIPS).ends(code)
    sentence = "polygon (2 times): 2 of 6 polygons of the labels have pixels in train and test"
    assert (sentence in completed.stderr) == (code == 4)


BY_POLYGON = ("--method", "group", "--by", "polygon", "--fractions", 0.5, 0.2, 0.3, "--min-valid", 0.02)


def polygon_split(run: Run, folder: Path, *arguments: object) -> tuple[Path, Path, dict[str, Any]]:
    """Tiles, labels and split file of small fields, several of which are in every chip."""
    labels = label_polygons(run, folder, fields_geojson(folder / "fields.geojson", 8, gap=2))
    tiles = write_tiles(folder / "a.zarr", "a", image(Tiles(labels).read("label") % 2, 1))
    split(run, folder, [tiles], [labels], *BY_POLYGON, *arguments).ends(0)
    return tiles, labels, read_split(folder / "split.json")


def test_every_polygon_is_in_one_split_every_class_in_all_and_a_chip_is_counted_once(tmp_path: Path, run: Run) -> None:
    _, labels, result = polygon_split(run, tmp_path)
    (fate,) = result.fates
    places = {tuple(sample) for samples in result.samples.values() for sample in samples}
    assert len(places) < sum(len(samples) for samples in result.samples.values()), "several splits use a chip"
    # 64 x 96 pixels are 4 x 6 chips of 16.
    assert (fate.scene, fate.samples, fate.unlabelled, fate.spare) == ("a", len(places), 0, 0)
    assert fate.unusable == 24 - len(places)
    polygons, label = Tiles(labels).read("polygon"), Tiles(labels).read("label")
    splits = splits_of_pixels(Tiles(labels), result.polygons)
    assert polygons.max() == len(result.polygons[""]) == 96
    for number in range(1, 97):
        assert len(np.unique(splits[polygons == number])) == 1
    assert (splits[polygons == 0] == NO_SPLIT).all()
    for number, name in enumerate(SPLITS):
        covered = covered_area(SHAPE, result.samples[name], CHIP)
        pixels = [int((label[covered & (splits == number)] == c).sum()) for c in (0, 1)]
        # Chips do not overlap each other here, so that a pixel counts once.
        assert list(result.pixels[name].values()) == pixels
        assert min(pixels) > 0
    share = [float(np.mean(np.array(result.polygons[""]) == number)) for number in range(3)]
    assert share == pytest.approx([0.5, 0.2, 0.3], abs=0.02)
    assert describe_test(result).startswith("All scores are from polygons of the labels that were not used in training")


def test_train_polygons_keep_the_buffer_to_those_of_test(tmp_path: Path, run: Run) -> None:
    tiles, labels, result = polygon_split(run, tmp_path, "--buffer", 4, "--fractions", 0.8, 0.1, 0.1)
    splits, areas, pairs = splits_of_pixels(Tiles(labels), result.polygons), {}, [(Tiles(tiles), Tiles(labels))]
    train, test = (np.argwhere(splits == number) for number in (0, 2))
    assert np.abs(train[:, None] - test[None]).max(-1).min() > 4
    for number, name in enumerate(SPLITS):
        areas[name] = np.argwhere(covered_area(SHAPE, result.samples[name], CHIP) & (splits == number))
    expected = {
        f"{first}-{second}": int(np.abs(areas[first][:, None] - areas[second][None]).max(-1).min()) - 1
        for first, second in combinations(SPLITS, 2)
    }
    assert result.audit.gap_pixels == expected
    assert min(expected.values()) >= 4
    (row, *_) = gap_rows(result, pairs)
    assert row[:2] == ("train to test", str(expected["train-test"]))
    nearest = f"The nearest training and test polygons are {expected['train-test']} pixels ("
    assert gap_text(result, pairs).startswith(nearest)


def test_pictures_show_the_split_of_each_polygon_and_not_of_whole_chips(tmp_path: Path, run: Run) -> None:
    tiles, labels, result = polygon_split(run, tmp_path)
    splits = splits_of_pixels(Tiles(labels), result.polygons)
    expected = np.full(SHAPE, NO_SPLIT)
    for number, name in enumerate(SPLITS):
        expected[covered_area(SHAPE, result.samples[name], CHIP) & (splits == number)] = number
    assert (expected == splits).mean() > 0.9
    role = split_roles(result, [(Tiles(tiles), Tiles(labels))], Decimation(SHAPE, 1))
    np.testing.assert_array_equal(role, expected)
    pixels = np.asarray(Image.open(tmp_path / "split.png").convert("RGB")).reshape(-1, 3)
    shares = [np.mean(np.abs(pixels.astype(int) - rgb(color)).max(1) < 8) for color in (*SPLIT_COLORS, UNUSED_COLOR)]
    # About as much of the map as the polygons of each split, and the rest of the chips in no colour of a split.
    of_map = [np.mean(splits == number) for number in range(3)]
    assert np.array(shares[:3]) / sum(shares[:3]) == pytest.approx(np.array(of_map) / sum(of_map), abs=0.06)


def test_training_and_evaluation_see_the_labels_of_their_polygons_only(tmp_path: Path, run: Run) -> None:
    tiles, labels, result = polygon_split(run, tmp_path)
    label, splits = Tiles(labels).read("label"), splits_of_pixels(Tiles(labels), result.polygons)
    pairs = [(Tiles(tiles), Tiles(labels))]
    for number, name in enumerate(("train", "val")):
        numbers = polygon_numbers(result.polygons, pairs[0][1], name)
        source = replace(chip_sources(pairs, ("red", "nir"))[0], polygons=tuple(numbers.tolist()))
        reader = ChipReader([source], CHIP, np.dtype("uint16"), 1 << 20)
        mask = np.zeros((1, CHIP, CHIP), np.uint8)
        out = ChipArrays(np.zeros((1, 2, CHIP, CHIP), np.uint16), mask, mask.copy())
        for window in (None, (0, 0, *SHAPE)):
            reader.read(ChipRequest(0, window, (0,), ((16, 32),), (0,)), out)
            expected = np.where(splits == number, label, NO_LABEL)[16:32, 32:48]
            np.testing.assert_array_equal(out.label[0], expected)
    evaluated = EvaluatedMap(0, {}, [pairs[0][0]], pairs[0][1])
    area = np.zeros(SHAPE, bool)
    for _, window, mask in EvaluationData([evaluated], ("x", "y"), result).areas("test"):
        area[window] |= mask
    assert (splits[area] == 2).all()
    assert area.sum() == (covered_area(SHAPE, result.samples["test"], CHIP) & (splits == 2)).sum()


def test_a_split_by_polygon_needs_polygons_and_the_method_group(tmp_path: Path, run: Run) -> None:
    tiles = write_tiles(tmp_path / "a.zarr", "a", image(classes(0), 1))
    labels = write_labels(tmp_path / "l.zarr", classes(0))
    no_polygons = "has no polygons, so split.by polygon cannot be used"
    split(run, tmp_path, [tiles], [labels], *BY_POLYGON).ends(3, no_polygons)
    split(run, tmp_path, [tiles], [labels], "--by", "polygon").ends(2)
    with pytest.raises(UsageError, match=r"split\.by polygon needs split\.method group"):
        check(config(split={"by": "polygon"}))


# Autocorrelation.


def exponential_field(seed: int, length: float, edge: int = 256) -> Float64Array:
    """A field with an exponential correlogram, by its spectrum: correlation exp(-h / length)."""
    frequency = 2 * np.pi * np.hypot(np.fft.fftfreq(edge)[:, None], np.fft.fftfreq(edge)[None])
    spectrum = (1 + (frequency * length) ** 2) ** -1.5
    noise = np.fft.fft2(np.random.default_rng(seed).normal(size=(edge, edge)))
    return np.asarray(np.fft.ifft2(noise * np.sqrt(spectrum)).real, np.float64)


@pytest.mark.parametrize("length", [2.0, 5.0, 10.0])
def test_the_range_of_a_known_field_is_measured(length: float) -> None:
    everywhere = np.ones((256, 256), bool)
    ranges = [correlation_range([exponential_field(seed, length)], everywhere) or 0 for seed in range(8)]
    # exp(-h / length) is 0.05 at three lengths.
    assert np.mean(ranges) == pytest.approx(3 * length, rel=0.35)
    holes = np.random.default_rng(0).random((256, 256)) < 0.7
    assert correlation_range([exponential_field(0, length)], holes) == pytest.approx(ranges[0], abs=1 + ranges[0] // 4)
    assert correlation_range([np.ones((256, 256))], everywhere) is None


@pytest.mark.parametrize(("scale", "buffer", "is_warned"), [(8.0, 0, True), (1.0, 0, False), (1.0, 4, False)])
def test_labels_that_are_alike_over_more_than_the_block_are_a_warning_that_stops_nothing(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture, scale: float, buffer: int, is_warned: bool
) -> None:
    label = (smooth_noise(4, scale) > 0).astype(np.uint8)
    tiles, labels = [write_tiles(tmp_path / "a.zarr", "a", image(label, 1))], [write_labels(tmp_path / "l.zarr", label)]
    blocks = ("--method", "blocks", "--block", 16, "--fractions", 0.6, 0.2, 0.2, "--buffer", buffer)
    split(run, tmp_path, tiles, labels, *blocks).ends(0)
    audit = audit_of(tmp_path)
    assert [warning["kind"] for warning in audit["warnings"]] == ["autocorrelation"] * is_warned, audit["label_range"]
    assert ("event=leakage_audit kind=autocorrelation" in caplog.text) == is_warned
    assert (f"labels are correlated over {audit['label_range']} pixels" in caplog.text) == is_warned
    if is_warned:
        assert split(run, tmp_path, tiles, labels, *blocks, "--allow", "autocorrelation: known").code == 0
        assert audit_of(tmp_path)["warnings"] == []
        assert audit_of(tmp_path)["allowed"][0]["reason"] == "known"
