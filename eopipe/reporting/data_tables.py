"""The data of a run: what was measured in each scene, which are outliers, and rows of tables about all of it.

A scene is an outlier when the distance of its histogram to the histogram of all scenes (Wasserstein-1, in
interquartile ranges of the pooled values) is more than three scaled median absolute deviations above the median scene
(Leys et al. 2013, doi:10.1016/j.jesp.2013.03.013).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array
from eopipe.chips.splits import SPLITS, Split
from eopipe.contract import stage
from eopipe.publish import MANIFEST, digest
from eopipe.reporting.decimation import decimate, read_centres
from eopipe.reporting.panels import EncodedImage, encode_photo, stretch_contrast
from eopipe.reporting.rasters import MapFile, Pairs, spread_evenly
from eopipe.reporting.wording import DASH, THIN_SPACE, format_count, format_length, format_percent, format_setting
from eopipe.scenes.item import scene_name
from eopipe.scenes.products import true_colour_bands
from eopipe.text_files import read_json
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.store import Tiles

TextRow = tuple[str, ...]
Item = dict[str, Any]
MAX_SCENES = 60
THUMBNAIL_EDGE = 128
BINS = 48
# In interquartile ranges; scenes of a homogeneous series differ by less.
MIN_OUTLIER_SHIFT = 0.5


@dataclass(frozen=True)
class LinkedText:
    """A licence or citation, with its web address where it has one."""

    text: str
    address: str
    is_licence: bool = False


def read_items(paths: tuple[Path, ...]) -> list[Item]:
    """The frozen items, sorted by date and name."""
    return sorted(map(read_json, paths), key=lambda item: (item_date(item), item["id"]))


def item_date(item: Item) -> str:
    """The day of a scene; the first one where the item covers a period."""
    properties = item["properties"]
    return str(properties.get("datetime") or properties.get("start_datetime") or DASH)[:10]


def item_dates(items: list[Item]) -> dict[str, str]:
    """The day of each scene by its name."""
    return {scene_name(item["id"]): item_date(item) for item in items}


@dataclass(frozen=True)
class SceneSummary:
    """One scene, decimated: physical values of the valid pixels of each band, and a thumbnail."""

    scene: str
    date: str
    values: dict[str, Float64Array]
    thumbnail: EncodedImage


@dataclass(frozen=True)
class BandHistograms:
    """Histograms of one band: shares (scene, bin) between `low` and `high`, and the shift of each scene."""

    name: str
    low: float
    high: float
    shares: Float64Array
    shift: Float64Array


@dataclass(frozen=True)
class DataQuality:
    """What the page shows of the data; `outliers` has the band with the largest shift, and the shift, by scene."""

    scenes: list[SceneSummary]
    bands: list[BandHistograms]
    outliers: dict[str, tuple[str, float]]
    omitted: int


def read_quality(stores: Sequence[Tiles], dates: dict[str, str]) -> DataQuality:
    """Summarise the stores by date; of more than sixty those spread evenly."""
    by_date = sorted(stores, key=lambda store: (_date(store, dates), store.scene))
    scenes = [_summary(store, _date(store, dates)) for store in spread_evenly(by_date, MAX_SCENES)]
    names = [name for name in stores[0].names if all(name in scene.values for scene in scenes)]
    bands = [band for band in (_histograms(name, scenes) for name in names) if band]
    return DataQuality(scenes, bands, find_outliers(scenes, bands), len(stores) - len(scenes))


def _date(store: Tiles, dates: dict[str, str]) -> str:
    """The day of the scene of a store; empty where it is not known."""
    return dates.get(store.scene) or str(store.attributes.get("datetime") or "")[:10]


def _summary(tiles: Tiles, date: str) -> SceneSummary:
    """The valid pixels of a scene in all cells; the thumbnail shows the cell with most of them."""
    parts = [_sampled(part.alone()) for part in tiles.parts]
    scale, offset = tiles.scaling
    values = {
        name: np.concatenate([stored[n][valid] for stored, valid in parts]) * scale + offset
        for n, name in enumerate(tiles.names)
    }
    return SceneSummary(tiles.scene, date, values, _thumbnail(tiles, *max(parts, key=lambda part: int(part[1].sum()))))


def _sampled(store: Tiles) -> tuple[AnyArray, BoolArray]:
    """Stored pixels (band, y, x) of a thumbnail, and which are valid (y, x)."""
    decimation = decimate(store.shape, THUMBNAIL_EDGE)
    stored = read_centres(partial(store.read, "image"), decimation)
    return stored, np.asarray(read_centres(partial(store.read, "valid"), decimation) > 0)


def _thumbnail(store: Tiles, stored: AnyArray, valid: BoolArray) -> EncodedImage:
    order = [store.names.index(name) for name in true_colour_bands(store.names)] or [0]
    bands = np.nan_to_num(stored[order].astype(np.float32), posinf=0, neginf=0)
    # Masked pixels are included, so that a reader can check the mask.
    has_data = valid | (bands != 0).any(0)
    return encode_photo(stretch_contrast(bands, has_data), has_data)


def _histograms(name: str, scenes: list[SceneSummary]) -> BandHistograms | None:
    """Histograms of a band; None where no scene has a valid pixel."""
    pooled = np.concatenate([scene.values[name] for scene in scenes])
    if not pooled.size:
        return None
    low, first_quartile, third_quartile, high = np.percentile(pooled, (0.5, 25, 75, 99.5))
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    # Values outside of the range count in the first or last bin.
    counts = [np.histogram(np.clip(scene.values[name], low, high), BINS, (low, high))[0] for scene in scenes]
    shares = np.stack([count / max(scene.values[name].size, 1) for count, scene in zip(counts, scenes, strict=True)])
    spread = max(third_quartile - first_quartile, (high - low) / BINS)
    shift = distances([scene.values[name] for scene in scenes]) / spread
    return BandHistograms(name, float(low), float(high), shares, shift)


def distances(samples: list[Float64Array]) -> Float64Array:
    """Wasserstein-1 distance of each sample to all of them together, in their unit; NaN for an empty one.

    All samples are sorted once: scipy's `wasserstein_distance` would sort the pool again for each of them.
    """
    support, places = np.unique(np.concatenate(samples), return_inverse=True)
    pool, gaps = _cumulative_shares(places, support.size), np.diff(support)
    parts = np.split(places, np.cumsum([sample.size for sample in samples])[:-1])
    shares = (_cumulative_shares(part, support.size) for part in parts)
    return np.array([np.abs(share - pool)[:-1] @ gaps for share in shares])


def _cumulative_shares(places: AnyArray, size: int) -> Float64Array:
    """The empirical distribution function at each of `size` places; NaN without values."""
    counts = np.bincount(places.ravel(), minlength=size)
    return np.cumsum(counts) / (places.size or np.nan)


def find_outliers(scenes: list[SceneSummary], bands: list[BandHistograms]) -> dict[str, tuple[str, float]]:
    """Outlier scenes, each with the band of its largest shift and that shift."""
    outliers: dict[str, tuple[str, float]] = {}
    for band in bands:
        known = band.shift[np.isfinite(band.shift)]
        median = np.median(known)
        limit = max(median + 3 * 1.4826 * np.median(np.abs(known - median)), MIN_OUTLIER_SHIFT)
        for scene, shift in zip(scenes, band.shift.tolist(), strict=True):
            if shift > limit and shift > outliers.get(scene.scene, ("", 0.0))[1]:
                outliers[scene.scene] = (band.name, shift)
    return outliers


def scene_heads(split: Split | None) -> TextRow:
    """The heads of `scene_rows`."""
    return ("Scene", "Date", "Cloud", "No data", "Masked", "Saturated", "Valid", *(("Chips",) if split else ()), "Note")


def scene_rows(
    items: list[Item], stores: Sequence[Tiles], outliers: dict[str, tuple[str, float]], split: Split | None
) -> list[TextRow]:
    """Store, date, cloud cover in the catalog, then measured shares of the grid, chips in the split, and a note.

    Below the stores are the scenes that composites skip, with the reason.
    """
    by_name, dates = {scene_name(item["id"]): item for item in items}, item_dates(items)
    chips = {fate.scene: format_count(fate.samples) for fate in split.fates} if split else {}
    reasons = {row.scene: f"not used: {row.reason}" for row in split.left_out} if split else {}
    notes, rows = {scene: f"outlier: {band} by {shift:.1f} IQR" for scene, (band, shift) in outliers.items()}, []
    for tiles in sorted(stores, key=lambda store: (dates.get(store.scene, ""), store.scene)):
        item, attributes = by_name.get(tiles.scene), tiles.attributes
        shares = attributes.get("quality") or {}
        measured = [format_percent(shares.get(key)) for key in ("nodata", "masked", "saturated")]
        valid = format_percent(attributes.get("valid_fraction"))
        cover = item["properties"].get("eo:cloud_cover") if item else None
        cloud = DASH if cover is None else f"{float(cover):.1f}{THIN_SPACE}%"
        note = " ".join(filter(None, (notes.get(tiles.scene), reasons.pop(tiles.scene, ""))))
        in_split = (chips.get(tiles.scene, DASH),) if split else ()
        rows.append((tiles.scene, _date(tiles, dates) or DASH, cloud, *measured, valid, *in_split, note))
    return rows + [(scene, dates.get(scene, DASH), *[DASH] * 6, reason) for scene, reason in reasons.items()]


def pixel_rows(split: Split) -> list[TextRow]:
    """Class, then pixels and share of its split for train, val and test; a last row with chips."""
    pixels = split.pixels
    totals = {name: max(sum(pixels[name].values()), 1) for name in SPLITS}
    rows = [
        (c, *(f"{format_count(pixels[n][c])} ({format_percent(pixels[n][c] / totals[n])})" for n in SPLITS))
        for c in split.classes
    ]
    return [*rows, ("chips", *(format_count(len(split.samples[name])) for name in SPLITS))]


def chip_rows(split: Split) -> list[TextRow]:
    """Chips of all scenes that are in a split, and those that are not by reason, with their share."""
    names = {
        "samples": "in a split",
        "unlabelled": "without labels",
        "unusable": "too few usable pixels (cloud, gaps, few labels)",
        "spare": "in no split (buffer, borders between areas)",
    }
    sums = {key: sum(getattr(fate, key) for fate in split.fates) for key in names}
    total = max(sum(sums.values()), 1)
    return [(reason, format_count(sums[key]), format_percent(sums[key] / total)) for key, reason in names.items()]


def split_unit(split: Split) -> str:
    """What the gaps of a split are between: a chip may show polygons of several splits."""
    return "polygons" if split.polygons else "chips"


def class_balance(split: Split, colors: tuple[str, ...]) -> list[tuple[str, list[tuple[str, str, float]]]]:
    """One bar for each split: class, its colour and its share of the labelled pixels."""
    titles = {"train": "Train", "val": "Validation", "test": "Test"}
    totals = {name: max(sum(split.pixels[name].values()), 1) for name in SPLITS}
    colored = [*zip(split.classes, colors, strict=True)]
    return [
        (titles[name], [(c, color, split.pixels[name][c] / totals[name]) for c, color in colored]) for name in SPLITS
    ]


def gap_rows(split: Split, pairs: Pairs) -> list[TextRow]:
    """Pair of splits, gap between their nearest chips or polygons in pixels and on the ground."""
    edge, gaps = min(pixel_metres(pairs[0][0].frame.cells[0].grid)), split.audit.gap_pixels
    named = {pair: pair.replace("-", " to ").replace("val", "validation") for pair in gaps}
    return [
        (named[pair], format_count(gaps[pair]), format_length(gaps[pair] * edge))
        for pair in ("train-test", "val-test", "train-val")
        if pair in gaps
    ]


def finding_rows(split: Split) -> list[TextRow]:
    """Leaks that the config allows and warnings, of the audit, then of the plan: kind, number, example and reason."""
    findings: list[TextRow] = [
        (finding.kind, format_count(finding.count), finding.example, finding.reason or "a warning")
        for finding in (*split.audit.allowed, *split.audit.warnings)
    ]
    return findings + [("plan", "1", sentence, "a warning") for sentence in split.warnings]


def gap_text(split: Split, pairs: Pairs) -> str:
    """The distance between training and test areas, with what it means for the scores."""
    gap = split.audit.gap_pixels.get("train-test")
    if gap is None:
        return ""
    unit = split_unit(split)
    if gap == 0:
        return (
            f"Training and test {unit} do not overlap but touch: neighbouring pixels are similar, "
            "so the scores may be slightly too high."
        )
    metres = format_length(gap * min(pixel_metres(pairs[0][0].frame.cells[0].grid)))
    return (
        f"The nearest training and test {unit} are {format_count(gap)} pixels ({metres}) apart, measured on the {unit}."
    )


def architecture_text(model: dict[str, Any]) -> str:
    """The architecture of a model; of an ensemble the architectures and the number of its members."""
    count, names = model.get("members", 1), [kind["architecture"] for kind in model.get("kinds", [model])]
    return f"{', '.join(names)} (ensemble of {count} models)" if count > 1 else names[0]


def model_rows(model: dict[str, Any]) -> list[TextRow]:
    """The architecture of the model, and the settings of its training that differ from their defaults."""
    architecture = {
        "architecture": architecture_text(model),
        "parameters": format_count(model["parameters"]),
        "width": format_setting(model["width"]),
        "depth": format_setting(model["depth"]),
        "bands": format_setting(model["bands"]),
        "chip": f"{model['chip']} pixels",
    }
    changed = setting_rows({key: value for key, value in model["settings"].items() if not _is_default(key, value)})
    return [*architecture.items(), *(row for row in changed if row[0] not in architecture)]


def default_rows(model: dict[str, Any]) -> list[TextRow]:
    """The settings of the training that have their defaults."""
    return setting_rows({key: value for key, value in model["settings"].items() if _is_default(key, value)})


def _is_default(key: str, value: Any) -> bool:
    """Whether a setting of the training has its default; JSON has lists for tuples."""
    ports = {port.name: port for port in stage("train").ports}
    default = ports[key].default if key in ports else object()
    return bool(value == (list(default) if isinstance(default, tuple) else default))


def setting_rows(settings: dict[str, Any]) -> list[TextRow]:
    """Settings by their names, with spaces for underscores."""
    return [(key.replace("_", " "), format_setting(value)) for key, value in sorted(settings.items())]


def digest_rows(
    files: dict[str, Path], maps: list[MapFile], stores: Sequence[Tiles], labels: Sequence[Tiles]
) -> list[TextRow]:
    """Name and sha256 of every input of the page; names follow from content, never from paths."""
    named = dict(files)
    named |= {f"tiles of {tiles.scene}": tiles.path for tiles in stores}
    named |= {f"labels of {label.scene}" if label.scene else "labels": label.path for label in labels}
    for file in maps:
        for kind, of_cells in (("classes", file.classes), ("probabilities", file.probabilities)):
            for cell, path in of_cells.items():
                named[" ".join(filter(None, [kind, "of", file.scene or "the mosaic", cell]))] = path
    readable = {path for path in named.values() if path.is_file() or (path / MANIFEST).is_file()}
    return [(name, digest(path) if path in readable else DASH) for name, path in named.items()]


def licences(items: list[Item]) -> list[LinkedText]:
    """The licences that the items name, each once."""
    names = {str(item["properties"]["license"]) for item in items if item["properties"].get("license")}
    links = {str(link["href"]) for item in items for link in item.get("links", []) if link.get("rel") == "license"}
    return [LinkedText(name, "") for name in sorted(names)] + [
        LinkedText(link, link if link.startswith(("https://", "http://")) else "", is_licence=True)
        for link in sorted(links)
    ]


def citations(items: list[Item]) -> list[LinkedText]:
    """How the items are to be cited, each once, with the address of the DOI where they have one."""
    keys = ("sci:citation", "sci:doi")
    pairs = {(*(str(item["properties"].get(key) or "") for key in keys),) for item in items}
    return [
        LinkedText(text or doi, f"https://doi.org/{doi.removeprefix('https://doi.org/')}" if doi else "")
        for text, doi in sorted(pairs)
        if text or doi
    ]


def credit_lines(items: list[Item]) -> list[str]:
    """The credit lines and the providers that the items name, each once."""
    lines = {str(item["properties"]["attribution"]) for item in items if item["properties"].get("attribution")}
    providers = {
        str(provider.get("name"))
        for item in items
        for provider in item["properties"].get("providers") or []
        if isinstance(provider, dict) and provider.get("name")
    }
    return [*sorted(lines), *sorted(providers)]
