"""Rows of tables about a run's data: scenes, chips, split, model settings, digests, licences and citations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eopipe.chips.splits import SPLITS, Split
from eopipe.contract import stage
from eopipe.publish import MANIFEST, digest
from eopipe.reporting.rasters import MapFile, Pairs
from eopipe.reporting.wording import DASH, THIN_SPACE, format_count, format_length, format_percent, format_setting
from eopipe.scenes.item import scene_name
from eopipe.text_files import read_json
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.store import Tiles

TextRow = tuple[str, ...]
Item = dict[str, Any]


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
    rows = []
    for tiles in sorted(stores, key=lambda store: (dates.get(store.scene, ""), store.scene)):
        item, attributes = by_name.get(tiles.scene), tiles.attributes
        shares = attributes.get("quality") or {}
        measured = [format_percent(shares.get(key)) for key in ("nodata", "masked", "saturated")]
        valid = format_percent(attributes.get("valid_fraction"))
        day = item_date(item) if item else str(attributes.get("datetime") or DASH)[:10]
        cover = item["properties"].get("eo:cloud_cover") if item else None
        cloud = DASH if cover is None else f"{float(cover):.1f}{THIN_SPACE}%"
        note = " ".join(filter(None, (_outlier_note(tiles.scene, outliers), reasons.pop(tiles.scene, ""))))
        in_split = (chips.get(tiles.scene, DASH),) if split else ()
        rows.append((tiles.scene, day, cloud, *measured, valid, *in_split, note))
    return rows + [(scene, dates.get(scene, DASH), *[DASH] * 6, reason) for scene, reason in reasons.items()]


def _outlier_note(scene: str, outliers: dict[str, tuple[str, float]]) -> str:
    if scene not in outliers:
        return ""
    band, shift = outliers[scene]
    return f"outlier: {band} by {shift:.1f} IQR"


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
    return [(name, _digest(path)) for name, path in named.items()]


def _digest(path: Path) -> str:
    return digest(path) if path.is_file() or (path / MANIFEST).is_file() else DASH


def licences(items: list[Item]) -> list[LinkedText]:
    """The licences that the items name, each once."""
    names = {str(item["properties"]["license"]) for item in items if item["properties"].get("license")}
    links = {str(link["href"]) for item in items for link in item.get("links", []) if link.get("rel") == "license"}
    return [LinkedText(name, "") for name in sorted(names)] + [
        LinkedText(link, _web_address(link), is_licence=True) for link in sorted(links)
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


def _web_address(href: str) -> str:
    return href if href.startswith(("https://", "http://")) else ""
