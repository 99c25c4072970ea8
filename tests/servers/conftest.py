"""Real servers, started once for all tests of this folder."""

from collections.abc import Iterator
from typing import Any

import pytest
from catalogs import CATALOGS
from nginx import Served, nginx
from stac_api import Api, load, stac_api

from eopipe.text_files import read_json


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A web server that has the files of the catalogs."""
    present_catalogs = {name: folder for name, folder in CATALOGS.items() if folder.is_dir()}
    with nginx(present_catalogs, tmp_path_factory.mktemp("nginx") / "work") as server:
        yield server


@pytest.fixture(scope="session")
def api(assets: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A STAC API with the scenes of the catalogs."""
    with stac_api(tmp_path_factory.mktemp("api")) as server:
        for name, folder in CATALOGS.items():
            if folder.is_dir():
                load(server, folder, f"{assets.url}/{name}")
        yield server


@pytest.fixture
def scene() -> dict[str, Any]:
    """The first item of the sample, to make others of."""
    item: dict[str, Any] = read_json(min((CATALOGS["sample"] / "sentinel-2-l2a-romania").glob("*/*.json")))
    return item
