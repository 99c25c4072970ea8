"""Requests to the servers, and scenes to put into them."""

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

from eopipe.text_files import read_json

SAMPLE = "sentinel-2-l2a-romania"
BANDS = ("--assets", "blue", "red", "scl")


def search(run: Run, folder: Path, api: Api, *arguments: object, assets: tuple[str, ...] = BANDS) -> Completed:
    outputs = ("--items", folder / "items", "--grid", folder / "grid.json", "--selection", folder / "selection.json")
    return run("search", "--url", api.url, *outputs, *assets, *arguments)


def names(folder: Path) -> list[str]:
    return sorted(path.stem for path in (folder / "items").glob("*.geojson"))


def dropped(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_json(folder / "selection.json")["dropped"]
    return rows


def filled(api: Api, scene: dict[str, Any], changes: dict[str, dict[str, Any]], name: str, sign: str = "") -> str:
    """Put copies of a scene with other properties (and geometry) into a collection; returns its id."""
    items = []
    for identity, properties in changes.items():
        item = copy.deepcopy(scene) | {"id": identity, "links": []}
        footprint = properties.pop("geometry", None)
        item |= {"geometry": footprint, "bbox": list(shape(footprint).bounds)} if footprint else {}
        item["properties"] |= properties
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
    """The requests that a web server receives from now on."""

    server: Served
    start: int = 0

    def __post_init__(self) -> None:
        self.start = self.server.log.stat().st_size

    def lines(self) -> list[Line]:
        """The requests since then (format `combined`)."""
        with self.server.log.open() as file:
            file.seek(self.start)
            fields = [line.split('"') for line in file]
        return [Line(request.split()[1], int(status.split()[0])) for _, request, status, *_ in fields]
