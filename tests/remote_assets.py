"""Scenes whose assets are random bytes, to fetch from servers."""

import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loopback import Loopback
from scenery import Completed, Run

from eopipe.fetch.retry import FetchSession
from eopipe.publish import verify


def tif(size: int, seed: int = 0) -> bytes:
    """Bytes of a TIFF file whose directory is empty."""
    header = b"II*\0" + struct.pack("<IHI", 8, 0, 0)
    return header + random.Random(seed).randbytes(size - len(header))


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


def named_hosts(item: dict[str, Any]) -> tuple[str, ...]:
    """The option that lets a scene come from the servers of a test, which no item may name by itself."""
    hosts = {urlsplit(asset["href"]).netloc for asset in item["assets"].values() if asset["href"].startswith("http:")}
    return ("--private-hosts", *sorted(hosts)) if hosts else ()


def loopback_session(**settings: Any) -> FetchSession:
    return FetchSession(**settings, private_hosts=("127.0.0.1",))


def fetch(run: Run, folder: Path, item: dict[str, Any], *arguments: object) -> Completed:
    (folder / "item.geojson").write_text(json.dumps(item))
    return run("fetch", "--item", folder / "item.geojson", "--scene", folder / "scene", *arguments, *named_hosts(item))


def is_fetched(folder: Path, content: dict[str, bytes]) -> bool:
    verify(folder / "scene")
    return all((folder / "scene" / f"{name}.tif").read_bytes() == body for name, body in content.items())
