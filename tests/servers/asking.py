"""What is asked of the servers, and scenes to put into them."""

import copy
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalogs import CATALOGS
from nginx import Served
from scenery import Completed, Run
from shapely.geometry import shape
from stac_api import Api

from eopipe.publish import read_json

SAMPLE = "sentinel-2-l2a-romania"
BANDS = ("--assets", "blue", "red", "scl")


def search(run: Run, place: Path, api: Api, *words: object, assets: tuple[str, ...] = BANDS) -> Completed:
    outputs = ("--items", place / "items", "--grid", place / "grid.json", "--selection", place / "selection.json")
    return run("search", "--url", api.url, *outputs, *assets, *words)


def names(place: Path) -> list[str]:
    return sorted(path.stem for path in (place / "items").glob("*.geojson"))


def dropped(place: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_json(place / "selection.json")["dropped"]
    return found


def filled(api: Api, scene: dict[str, Any], changes: dict[str, dict[str, Any]], name: str, sign: str = "") -> str:
    """Put copies of a scene with other properties (and geometry) into a collection; its id."""
    items = []
    for identity, told in changes.items():
        item = copy.deepcopy(scene) | {"id": identity, "links": []}
        place = told.pop("geometry", None)
        item |= {"geometry": place, "bbox": list(shape(place).bounds)} if place else {}
        item["properties"] |= told
        for asset in item["assets"].values():
            asset["href"] = f"https://assets.example/{identity}/{asset['href'].removeprefix('./')}{sign}"
        items.append(item)
    collection = read_json(CATALOGS["sample"] / SAMPLE / "collection.json")
    random.Random(0).shuffle(items)
    api.add(collection | {"id": name, "links": []}, items)
    return name


@dataclass(frozen=True)
class Line:
    """One request in the log of the web server."""

    path: str
    status: int


@dataclass
class Watch:
    """What a web server is asked from now on."""

    server: Served
    start: int = 0

    def __post_init__(self) -> None:
        self.start = self.server.log.stat().st_size

    def lines(self) -> list[Line]:
        """The requests since then (format `combined`)."""
        with self.server.log.open() as file:
            file.seek(self.start)
            words = [line.split('"') for line in file]
        return [Line(request.split()[1], int(status.split()[0])) for _, request, status, *_ in words]
