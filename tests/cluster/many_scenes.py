"""A catalog of many small scenes: copies of those of the sample, each with another date."""

import json
import shutil
from datetime import date, timedelta
from pathlib import Path

import yaml

from eopipe.run.project import SNAKEFILE
from eopipe.text_files import read_json, write_json

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample"


def project(folder: Path, scenes: int) -> Path:
    """A project as `eopipe init` makes one, over a catalog of its own."""
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    del config["composite"]
    config["search"]["catalog"] = str(catalog(folder / "catalog", scenes).relative_to(folder))
    config["label"]["source"] = str(SAMPLE / Path(config["label"]["source"]).name)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "Snakefile").write_text(SNAKEFILE)
    return folder


def tiles(folder: Path) -> list[str]:
    """The tile stores of all scenes that were found."""
    return [f"results/tiles/{item.stem}.zarr/manifest.json" for item in sorted(folder.glob("results/items/*.geojson"))]


def catalog(folder: Path, scenes: int) -> Path:
    """Write the catalog; every scene has its own copy of its assets."""
    sources = sorted(SAMPLE.glob("*/S2_*/S2_*.json"))
    home = folder / sources[0].parents[1].name
    home.mkdir(parents=True)
    shutil.copy(SAMPLE / "catalog.json", folder)
    names = [_scene(sources[number % len(sources)], home, number) for number in range(scenes)]
    collection = read_json(sources[0].parents[1] / "collection.json")
    others = [link for link in collection["links"] if link["rel"] != "item"]
    items = [{"rel": "item", "href": f"./{name}/{name}.json", "type": "application/geo+json"} for name in names]
    write_json(home / "collection.json", collection | {"links": others + items})
    return folder


def _scene(source: Path, home: Path, number: int) -> str:
    day = date(2017, 1, 1) + timedelta(days=number)
    name = f"S2_MANY_{day:%Y%m%d}"
    shutil.copytree(source.parent, home / name)
    (home / name / source.name).rename(home / name / f"{name}.json")
    item = json.loads((home / name / f"{name}.json").read_text())
    item["id"] = name
    item["properties"]["datetime"] = f"{day}T00:00:00Z"
    write_json(home / name / f"{name}.json", item)
    return name
