"""Small real scenes in a static STAC catalog, whose pixel values encode their positions."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray

if TYPE_CHECKING:
    from eopipe.tiles.store import Tiles

LEFT, TOP, STEP, CRS = 500000.0, 5100000.0, 10.0, "EPSG:32633"
# A scene classification of vegetation everywhere.
CLEAR = np.full((64, 48), 4, np.uint8)


def numbered(shape: tuple[int, int], first: int = 1, dtype: str = "uint16") -> AnyArray:
    """Pixels whose values encode their positions: first, first + 1, … row by row."""
    return (first + np.arange(shape[0] * shape[1])).reshape(shape).astype(dtype)


def covered_area(shape: tuple[int, int], samples: AnyArray, chip: int) -> AnyArray:
    """Mask (y, x) of the pixels in the chips of some samples (scene, row, column)."""
    mask = np.zeros(shape, bool)
    for _, row, column in samples:
        mask[row : row + chip, column : column + chip] = True
    return mask


def write_raster(path: Path, pixels: AnyArray, **other: Any) -> Path:
    """Write a cloud-optimised GeoTIFF of one band."""
    import rasterio
    from rasterio.transform import from_origin

    profile = {"left": LEFT, "top": TOP, "step": STEP, "crs": CRS, "nodata": 0, "driver": "COG", "compress": "deflate"}
    profile |= other
    transform = from_origin(profile.pop("left"), profile.pop("top"), step := profile.pop("step"), step)
    size = {"height": pixels.shape[0], "width": pixels.shape[1], "count": 1, "dtype": pixels.dtype}
    path.parent.mkdir(parents=True, exist_ok=True)
    block = {"blocksize": 128} if profile["driver"] == "COG" else {}
    with rasterio.open(path, "w", transform=transform, **block, **size, **profile) as file:
        file.write(pixels, 1)
    return path


def asset_of(file: Path, href: str) -> dict[str, Any]:
    """Build the asset of a raster as good catalogs write it: with transform, size and checksum."""
    import rasterio

    with rasterio.open(file) as source:
        projection = {"proj:transform": list(source.transform)[:6], "proj:shape": [source.height, source.width]}
        nodata = source.nodata
    code = hashlib.sha256(file.read_bytes()).hexdigest()
    band = {"scale": 0.0001, "offset": 0.0, "nodata": nodata}
    return {
        "href": href,
        "file:size": file.stat().st_size,
        "file:checksum": f"1220{code}",
        "raster:bands": [band],
    } | projection


@dataclass
class Catalog:
    """A static STAC catalog under construction; change `items` before `write`."""

    root: Path
    items: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        name: str = "scene",
        bands: dict[str, AnyArray] | None = None,
        *,
        shape: tuple[int, int] = (64, 48),
        left: float = LEFT,
        top: float = TOP,
        crs: str = CRS,
        steps: dict[str, float] | None = None,
        properties: dict[str, Any] | None = None,
        **raster: Any,
    ) -> dict[str, Any]:
        """Add a scene; its bands are by default blue, red and scl, the first two with position values."""
        from rasterio.warp import transform_geom
        from shapely.geometry import box, mapping

        bands = bands or {"blue": numbered(shape), "red": numbered(shape, 101), "scl": np.full(shape, 4, np.uint8)}
        folder = self.root / f"s{len(self.items)}"
        assets = {}
        for band, pixels in bands.items():
            step = (steps or {}).get(band, STEP)
            file = write_raster(folder / f"{band}.tif", pixels, left=left, top=top, step=step, crs=crs, **raster)
            assets[band] = asset_of(file, f"./{band}.tif")
        height, width = shape
        outline = mapping(box(left, top - height * STEP, left + width * STEP, top))
        item = {
            "type": "Feature",
            "stac_version": "1.1.0",
            "stac_extensions": [],
            "id": name,
            "collection": "sentinel",
            "geometry": transform_geom(crs, "EPSG:4326", outline),
            "properties": {"datetime": "2023-08-01T10:00:00Z", "eo:cloud_cover": 5.0, "proj:code": crs}
            | (properties or {}),
            "links": [],
            "assets": assets,
        }
        self.items.append(item)
        return item

    def add_months(self, shape: tuple[int, int], count: int) -> None:
        """Add scenes of May, June, … of 2023, whose bands compress to nothing."""
        for number in range(count):
            bands = {name: np.full(shape, 4, np.uint8) for name in ("blue", "red", "scl")}
            properties = {"datetime": f"2023-0{number + 5}-01T10:00:00Z"}
            self.add(f"scene-{number}", bands, shape=shape, properties=properties)

    def write(self) -> Path:
        """Write the items and the catalog that links them; return its folder."""
        links = [{"rel": "root", "href": "./catalog.json"}]
        for number, item in enumerate(self.items):
            (self.root / f"s{number}").mkdir(parents=True, exist_ok=True)
            (self.root / f"s{number}" / "item.json").write_text(json.dumps(item))
            links.append({"rel": "item", "href": f"./s{number}/item.json"})
        head = {"type": "Catalog", "stac_version": "1.1.0", "id": "c", "description": "scenes", "links": links}
        (self.root / "catalog.json").write_text(json.dumps(head))
        return self.root


# A config of scenes on disk that is right, of which a test changes some sections.
SECTIONS: dict[str, Any] = {
    "search": {"catalog": "catalog", "assets": ["blue", "red", "scl"]},
    "preprocess": {"bands": ["blue", "red"], "chunk": 16, "shard": 64},
    "label": {"source": "labels.tif", "classes": ["a", "b"], "chunk": 16, "shard": 64},
    "split": {"method": "west-east", "fractions": [0.5, 0.2, 0.3], "chip": 16},
    "train": {"depth": 2},
}


def write_config(folder: Path, sections: dict[str, Any] = SECTIONS, **changes: Any) -> dict[str, Any]:
    """A config of these sections with some values changed."""
    import yaml

    config = dict(sections)
    for name, values in changes.items():
        config[name] = config.get(name, {}) | values if isinstance(values, dict) else values
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return config


def write_stripes(path: Path, shape: tuple[int, int], classes: int, nodata: float | None = 2) -> AnyArray:
    """A label raster of striped classes."""
    codes = (np.arange(shape[0])[:, None] // 7 + np.arange(shape[1]) // 9) % classes
    write_raster(path, codes.astype(np.uint8), nodata=nodata)
    return codes


def search_outputs(folder: Path) -> list[str]:
    """The options for the outputs of search in a folder."""
    names = {"items": "items", "grid": "grid.json", "selection": "selection.json"}
    return [word for port, name in names.items() for word in (f"--{port}", str(folder / name))]


def split_outputs(folder: Path) -> list[str]:
    """The options for the outputs of split in a folder."""
    names = {"chips": "split.json", "statistics": "statistics.json", "map": "split.png", "outlines": "split.gpkg"}
    return [word for port, name in names.items() for word in (f"--{port}", str(folder / name))]


@dataclass(frozen=True)
class Completed:
    """A finished command: exit code and what it printed."""

    code: int
    stderr: str
    stdout: str = ""

    def ends(self, code: int, *named: str) -> "Completed":
        """Check the exit code, and that the message names all of these."""
        assert self.code == code, self.stderr
        missing = [text for text in named if text not in self.stderr]
        assert not missing, f"not named: {missing}\n{self.stderr}"
        return self


Run = Callable[..., Completed]


@dataclass(frozen=True)
class Fetch:
    """Fetch the scene of an item into a folder, from the servers that the item names."""

    run: Run
    folder: Path
    options: tuple[object, ...] = ()

    def __call__(self, item: dict[str, Any], *arguments: object) -> Completed:
        from remote_assets import named_hosts

        (self.folder / "item.geojson").write_text(json.dumps(item))
        places = ("--item", self.folder / "item.geojson", "--scene", self.scene, *self.options)
        return self.run("fetch", *places, *arguments, *named_hosts(item))

    @property
    def scene(self) -> Path:
        return self.folder / "scene"

    def brought(self, content: dict[str, bytes]) -> bool:
        """Whether the scene is whole and has these files."""
        from remote_assets import is_fetched

        return is_fetched(self.folder, content)


@dataclass(frozen=True)
class Search:
    """Search a folder or a server; what it froze."""

    run: Run
    folder: Path
    options: tuple[object, ...] = ("--assets", "blue", "red")

    def __call__(self, source: Path | str, *arguments: object) -> Completed:
        option = "--url" if isinstance(source, str) else "--catalog"
        return self.run("search", option, source, *search_outputs(self.folder), *self.options, *arguments)

    def to(self, name: str, *options: str) -> "Search":
        """The search into another folder, or with other options."""
        return Search(self.run, self.folder.parent / name, options or self.options)

    def names(self) -> list[str]:
        """The names of the scenes."""
        return sorted(path.stem for path in self.items.glob("*.geojson"))

    @property
    def items(self) -> Path:
        return self.folder / "items"

    def item(self, name: str) -> dict[str, Any]:
        """A frozen scene."""
        value: dict[str, Any] = json.loads((self.items / f"{name}.geojson").read_text())
        return value

    @property
    def grid(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.folder / "grid.json").read_text())
        return value


SMALL = ("--chunk", 16, "--shard", 32)


@dataclass(frozen=True)
class Preprocess:
    """Preprocess the scenes of a catalog as if they had been fetched, on a grid that is by default theirs.

    The store is beside the catalog; a call that fails makes none.
    """

    run: Run
    catalog: Catalog

    @property
    def scene(self) -> Path:
        """The folder of the first scene."""
        return self.catalog.root / "s0"

    @property
    def folder(self) -> Path:
        return self.catalog.root.parent

    @property
    def store(self) -> Path:
        return self.folder / "tiles.zarr"

    def __call__(
        self,
        *options: object,
        number: int = 0,
        shape: tuple[int, int] = (64, 48),
        left: float = LEFT,
        top: float = TOP,
        step: float = STEP,
        bands: tuple[str, ...] = ("blue", "red"),
        crs: str = CRS,
        size: tuple[object, ...] = SMALL,
    ) -> Completed:
        scene, grid, existed = self.catalog.root / f"s{number}", self.folder / "grid.json", self.store.exists()
        (scene / "scene.json").write_text(json.dumps(self.catalog.items[number]))
        grid.write_text(json.dumps({"crs": crs, "shape": shape, "transform": [step, 0.0, left, 0.0, -step, top]}))
        places = ("--scene", scene, "--grid", grid, "--tiles", self.store, "--bands", *bands)
        completed = self.run("preprocess", *places, *size, *options)
        assert not completed.code or self.store.exists() == existed
        return completed

    def tiles(self, *options: object, **grid: Any) -> "Tiles":
        """The store of a scene on this grid."""
        from eopipe.tiles.store import Tiles

        self(*options, **grid).ends(0)
        return Tiles(self.store)

    def pixels(self, *options: object, **grid: Any) -> tuple[AnyArray, AnyArray]:
        """Pixels (band, y, x) and valid mask (y, x) of the store of a scene."""
        tiles = self.tiles(*options, **grid)
        return tiles.read("image"), tiles.read("valid") > 0
