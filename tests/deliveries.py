"""Scenes whose assets are just bytes, to bring from servers."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

from loopback import Loopback
from scenery import Completed, Run

from eopipe.publish import verify


def tif(size: int, seed: int = 0) -> bytes:
    """Bytes that begin like a GeoTIFF."""
    return b"II*\0" + random.Random(seed).randbytes(size - 4)


def item_of(assets: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "type": "Feature",
        "stac_version": "1.1.0",
        "id": "scene",
        "geometry": None,
        "properties": {"datetime": "2020-01-01T00:00:00Z"},
        "links": [],
        "assets": assets,
    }


def put(web: Loopback, content: dict[str, bytes], *, tell: bool = True) -> dict[str, Any]:
    """Put files on the server; return the item of a scene that has them as assets."""
    assets = {}
    for name, body in content.items():
        (web.folder / f"{name}.tif").write_bytes(body)
        told = {"file:size": len(body), "file:checksum": f"1220{hashlib.sha256(body).hexdigest()}"} if tell else {}
        assets[name] = {"href": f"{web.url}/{name}.tif"} | told
    return item_of(assets)


def fetch(run: Run, place: Path, item: dict[str, Any], *words: object) -> Completed:
    (place / "item.geojson").write_text(json.dumps(item))
    return run("fetch", "--item", place / "item.geojson", "--scene", place / "scene", *words)


def came(place: Path, content: dict[str, bytes]) -> bool:
    verify(place / "scene")
    return all((place / "scene" / f"{name}.tif").read_bytes() == body for name, body in content.items())
