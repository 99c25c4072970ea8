"""The facts behind a run, as rows of tables: scenes, places, pixels, settings, digests, licences."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eopipe.chips.splits import SPLITS
from eopipe.publish import MANIFEST, digest, read_json
from eopipe.reporting.rasters import MapFile, Pairs
from eopipe.reporting.wording import DASH, THIN_SPACE, count, length, number, percent, pixel_metres
from eopipe.scenes.item import scene_name

Row = tuple[str, ...]
Item = dict[str, Any]


@dataclass(frozen=True)
class Licence:
    """What the data may be used for: an address to click on where it is one, else words."""

    text: str
    address: str


def read_items(paths: tuple[Path, ...]) -> list[Item]:
    """Read the frozen items, sorted by date and name."""
    return sorted(map(read_json, paths), key=lambda item: (date(item), item["id"]))


def date(item: Item) -> str:
    """Give the day of a scene; its start where the item covers a time."""
    told = item["properties"]
    return str(told.get("datetime") or told.get("start_datetime") or DASH)[:10]


def dates(items: list[Item]) -> dict[str, str]:
    """Give the day of each scene by its name."""
    return {scene_name(item["id"]): date(item) for item in items}


def scene_rows(
    items: list[Item], pairs: Pairs, drifted: dict[str, tuple[str, float]], split: dict[str, Any]
) -> list[Row]:
    """Store, date, cloud cover as the catalog says, then measured shares of the grid, chips, and what is odd."""
    told = {scene_name(item["id"]): item for item in items}
    chips = {fate["scene"]: count(fate["samples"]) for fate in split["fates"]}
    rows = []
    for tiles, _ in sorted(pairs, key=lambda pair: (dates(items).get(pair[0].scene, ""), pair[0].scene)):
        item, facts = told.get(tiles.scene), tiles.attributes
        shares = facts.get("quality") or {}
        measured = [percent(shares.get(key)) for key in ("nodata", "masked", "saturated")]
        valid = percent(facts.get("valid_fraction"))
        day = date(item) if item else str(facts.get("datetime") or DASH)[:10]
        cloud = _cloud(item) if item else DASH
        odd = _odd(tiles.scene, drifted)
        rows.append((tiles.scene, day, cloud, *measured, valid, chips.get(tiles.scene, DASH), odd))
    return rows


def _odd(scene: str, drifted: dict[str, tuple[str, float]]) -> str:
    if scene not in drifted:
        return ""
    band, shift = drifted[scene]
    return f"unlike the rest: {band} by {shift:.1f} quartile ranges"


def _cloud(item: Item) -> str:
    cover = item["properties"].get("eo:cloud_cover")
    return DASH if cover is None else f"{float(cover):.1f}{THIN_SPACE}%"


def pixel_rows(split: dict[str, Any]) -> list[Row]:
    """Class, then pixels and share of its split for train, val and test; a last row with chips."""
    totals = {name: max(sum(split["pixels"][name].values()), 1) for name in SPLITS}
    rows = [
        (c, *(f"{count(split['pixels'][n][c])} ({percent(split['pixels'][n][c] / totals[n])})" for n in SPLITS))
        for c in split["classes"]
    ]
    return [*rows, ("chips", *(count(len(split["samples"][name])) for name in SPLITS))]


def fate_rows(split: dict[str, Any]) -> list[Row]:
    """What became of all chips of all scenes, with their share."""
    names = {
        "samples": "in a split",
        "unlabelled": "without labels",
        "unusable": "too few usable pixels (cloud, gaps, few labels)",
        "spare": "in no split (buffer, borders between places)",
    }
    sums = {key: sum(int(fate[key]) for fate in split["fates"]) for key in names}
    total = max(sum(sums.values()), 1)
    return [(words, count(sums[key]), percent(sums[key] / total)) for key, words in names.items()]


def gap_rows(split: dict[str, Any], pairs: Pairs) -> list[Row]:
    """Pair of splits, gap between their nearest chips in pixels and on the ground."""
    edge = min(pixel_metres(pairs[0][0].grid))
    gaps = split["audit"]["gap_pixels"]
    return [
        (pair.replace("-", " to ").replace("val", "validation"), count(gaps[pair]), length(gaps[pair] * edge))
        for pair in ("train-test", "val-test", "train-val")
        if pair in gaps
    ]


def finding_rows(split: dict[str, Any]) -> list[Row]:
    """List the leaks that the audit found and the config allows: kind, how often, where, and why."""
    found = split["audit"].get("allowed") or []
    return [(str(f["kind"]), count(int(f["count"])), str(f["example"]), str(f["reason"])) for f in found]


def gap_words(split: dict[str, Any], pairs: Pairs) -> str:
    """How far the test places lie from the training places, said honestly."""
    gap = split["audit"]["gap_pixels"].get("train-test")
    if gap is None:
        return ""
    if gap == 0:
        return (
            "Training and test chips do not overlap but touch: neighbours look alike, "
            "so the scores may be somewhat too good."
        )
    metres = length(gap * min(pixel_metres(pairs[0][0].grid)))
    return f"Between the nearest training and test chips lie {count(gap)} pixels ({metres}), measured on the chips."


def model_rows(model: dict[str, Any]) -> list[Row]:
    """Say what the model is and how it was trained."""
    known = {
        "architecture": model["architecture"],
        "parameters": count(model["parameters"]),
        "width": number(model["width"]),
        "depth": number(model["depth"]),
        "bands": number(model["bands"]),
        "chip": f"{model['chip']} pixels",
    }
    settings = {key.replace("_", " "): number(value) for key, value in sorted(model["settings"].items())}
    return [*known.items(), *((key, value) for key, value in settings.items() if key not in known)]


def plan_rows(split: dict[str, Any]) -> list[Row]:
    """How places were dealt out."""
    return [(key.replace("_", " "), number(value)) for key, value in sorted(split["plan"].items())]


def digest_rows(single: dict[str, Path], maps: list[MapFile], pairs: Pairs) -> list[Row]:
    """Name and sha256 of everything the page is made of; names come from content, never from paths."""
    named = dict(single)
    for tiles, label in pairs:
        named[f"tiles of {tiles.scene}"] = tiles.path
        named[f"labels of {label.scene}" if label.scene else "labels"] = label.path
    for file in maps:
        named[f"classes of {file.scene or 'the mosaic'}"] = file.classes
        named[f"probabilities of {file.scene or 'the mosaic'}"] = file.probabilities
    return [(name, _digest(path)) for name, path in named.items()]


def _digest(path: Path) -> str:
    return digest(path) if path.is_file() or (path / MANIFEST).is_file() else DASH


def licences(items: list[Item]) -> list[Licence]:
    """List the licences that the items name, each once."""
    told = {str(item["properties"]["license"]) for item in items if item["properties"].get("license")}
    links = {str(link["href"]) for item in items for link in item.get("links", []) if link.get("rel") == "license"}
    return [Licence(text, "") for text in sorted(told)] + [Licence(href, _address(href)) for href in sorted(links)]


def citations(items: list[Item]) -> list[Licence]:
    """List how the items ask to be cited, with the address of the DOI where they have one."""
    told = {
        (str(item["properties"].get("sci:citation") or ""), str(item["properties"].get("sci:doi") or ""))
        for item in items
    }
    return [
        Licence(text or doi, f"https://doi.org/{doi.removeprefix('https://doi.org/')}" if doi else "")
        for text, doi in sorted(told)
        if text or doi
    ]


def credits_of(items: list[Item]) -> list[str]:
    """List the credit lines and the providers that the items name, each once."""
    lines = {str(item["properties"]["attribution"]) for item in items if item["properties"].get("attribution")}
    people = {
        str(provider.get("name"))
        for item in items
        for provider in item["properties"].get("providers") or []
        if isinstance(provider, dict) and provider.get("name")
    }
    return [*sorted(lines), *sorted(people)]


def _address(href: str) -> str:
    return href if href.startswith(("https://", "http://")) else ""
