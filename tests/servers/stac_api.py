"""A STAC API of the tests: stac-fastapi on pgstac, filled over HTTP as a provider fills its own."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import requests
from postgres import postgres
from processes import free_port, listens, running, skip_as_missing

BIN = Path(__file__).parents[2] / ".venv/servers/bin"


@dataclass(frozen=True)
class Api:
    """A STAC API that takes collections and items."""

    url: str

    def add(self, collection: dict[str, Any], items: list[dict[str, Any]]) -> None:
        """Put a collection with all its items into the database."""
        self._post("collections", collection)
        items_by_id = {item["id"]: item | {"collection": collection["id"]} for item in items}
        self._post(f"collections/{collection['id']}/bulk_items", {"items": items_by_id, "method": "upsert"})

    def _post(self, path: str, value: Any) -> None:
        response = requests.post(f"{self.url}/{path}", json=value, timeout=60)
        assert response.ok, response.text


@contextmanager
def stac_api(work: Path) -> Iterator[Api]:
    """Start the database, make the schema of pgstac in it and start the API."""
    if not (BIN / "pypgstac").is_file():
        skip_as_missing("stac-fastapi-pgstac is not installed")
    port = free_port()
    with postgres() as database:
        settings = {"ENABLE_TRANSACTIONS_EXTENSIONS": "TRUE", "DB_MAX_CONN_SIZE": "4"}
        environment = os.environ | database.environment | settings
        subprocess.run([BIN / "pypgstac", "migrate"], env=environment, check=True, capture_output=True)
        command = [str(BIN / "uvicorn"), "stac_fastapi.pgstac.app:create_app", "--factory", "--port", str(port)]
        # pydantic would read a .env of the working folder.
        with running(command, work / "api.log", lambda: listens(port), env=environment, cwd=work):
            yield Api(f"http://127.0.0.1:{port}")


def load(api: Api, folder: Path, address: str) -> None:
    """Put every collection of a static catalog into the API; its assets are read from a web address."""
    head = json.loads((folder / "catalog.json").read_text())
    for link in head["links"]:
        if link["rel"] == "child":
            path = folder / link["href"]
            collection = json.loads(path.read_text())
            paths = [path.parent / link["href"] for link in collection["links"] if link["rel"] == "item"]
            items = [_served(p, f"{address}/{p.resolve().relative_to(folder.resolve())}") for p in paths]
            api.add(collection | {"links": _outward(collection)}, items)


def _served(path: Path, address: str) -> dict[str, Any]:
    item: dict[str, Any] = json.loads(path.read_text())
    assets = {name: asset | {"href": urljoin(address, asset["href"])} for name, asset in item["assets"].items()}
    return item | {"assets": assets, "links": _outward(item)}


def _outward(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [link for link in value["links"] if link["href"].startswith("http")]
