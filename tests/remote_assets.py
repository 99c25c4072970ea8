"""Scenes whose assets are random bytes, to fetch from servers."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

from loopback import Loopback
from scenery import Completed, Run

from eopipe.publish import verify


def tif(size: int, seed: int = 0) -> bytes:
    """Bytes with the signature of a TIFF file."""
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


def put(web: Loopback, content: dict[str, bytes], *, metadata: bool = True) -> dict[str, Any]:
    """Put files on the server; return the item of a scene that has them as assets."""
    assets = {}
    for name, body in content.items():
        (web.folder / f"{name}.tif").write_bytes(body)
        file_metadata = (
            {"file:size": len(body), "file:checksum": f"1220{hashlib.sha256(body).hexdigest()}"} if metadata else {}
        )
        assets[name] = {"href": f"{web.url}/{name}.tif"} | file_metadata
    return item_of(assets)


def fetch(run: Run, folder: Path, item: dict[str, Any], *arguments: object) -> Completed:
    (folder / "item.geojson").write_text(json.dumps(item))
    return run("fetch", "--item", folder / "item.geojson", "--scene", folder / "scene", *arguments)


def is_fetched(folder: Path, content: dict[str, bytes]) -> bool:
    verify(folder / "scene")
    return all((folder / "scene" / f"{name}.tif").read_bytes() == body for name, body in content.items())
