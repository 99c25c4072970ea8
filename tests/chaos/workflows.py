"""The small projects that are disturbed, each with the command that runs it."""

import hashlib
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import two_zones
import yaml
import zarr
from chip_files import write_regions, write_world
from loopback import Fault, Loopback
from projects import DAYS, ROOT, Project
from scenery import LEFT, STEP, TOP, Catalog

from chaos.processes import TAG, Tag

PROGRAM = str(Path(sys.executable).with_name("eopipe"))
RUN = (PROGRAM, "run", "--configfile", "config.yaml", "--cores", "2")
SCENES = [f"S2_ROMANIA_{day}" for day in DAYS[:2]]
TRAIN = {"epochs": 4, "batch": 8, "width": 8, "checkpoint_every": 3, "processes": 2}
BY_SNAKEMAKE = ("group", "run", "snakemake", "stage", "worker")
# A job outlives a cwltool that is killed alone: it is started by cwltool and not by eopipe.
BY_CWLTOOL = ("group", "cwltool", "stage", "worker")
# Not payload: run records, logs, measurements, and the crate, which has times.
IGNORED = ("logs", "benchmarks", "crate")


@dataclass(frozen=True)
class Workflow:
    """A small project with the command that runs it."""

    engine: str
    folder: Path
    command: tuple[str, ...]
    # Kinds of processes, or the group; each as probable as it is often here.
    victims: tuple[str, ...] = BY_SNAKEMAKE
    # Folders in which the command writes payload.
    outputs: tuple[str, ...] = ("results",)
    # Removed before each start.
    swept: tuple[str, ...] = ()

    def digests(self) -> dict[str, str]:
        """The sha256 of every payload file."""
        payload = {
            str(path.relative_to(self.folder)): path
            for output in self.outputs
            for path in sorted((self.folder / output).rglob("*"))
            if path.is_file()
            and path.relative_to(self.folder / output).parts[0] not in IGNORED
            and not path.name.endswith((".run.json", ".snakemake_timestamp"))
        }
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in payload.items()}

    def start(self, tag: Tag, log: Path) -> "subprocess.Popen[bytes]":
        """Start its command as the leader of a session."""
        for name in self.swept:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        with log.open("ab") as output:
            return subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=tag.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


def sample_by_snakemake(folder: Path, _: Loopback) -> Workflow:
    """A run to the scores of a map of two scenes."""
    folder.mkdir(parents=True)
    (folder / "sample").symlink_to(ROOT / "sample")
    Project(folder).write(search={"ids": SCENES}, train=TRAIN)
    return Workflow("snakemake", folder, (*RUN, "--", "results/metrics.json"))


def sample_by_cwltool(folder: Path, web: Loopback) -> Workflow:
    """The same up to the catalog, with a cache; cwltool writes its outputs at its end, beside those that are there."""
    sample_by_snakemake(folder, web)
    subprocess.run([PROGRAM, "cwl", "config.yaml"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with (folder / "cwl/job.yml").open("a") as job:
        job.write("with_onnx: false\nwith_report: false\nwith_crate: false\n")
    places = ("--cachedir", "cache", "--outdir", "results", "--preserve-environment", TAG)
    documents = ("cwl/pipeline.cwl", "cwl/job.yml")
    command = (str(Path(PROGRAM).with_name("cwltool")), "--quiet", *places, *documents)
    return Workflow("cwltool", folder, command, BY_CWLTOOL, swept=("results",))


def chip_set(folder: Path, _: Loopback) -> Workflow:
    """The import of 20 chips in four UTM zones, then the run to the scores of their maps."""
    folder.mkdir(parents=True)
    write_world(folder, zones=4)
    write_regions(folder / "regions.geojson", zones=4)
    regions = {"method": "group", "by": "region", "regions": "regions.geojson", "attribute": "name"}
    groups = {"val_groups": ["zone01"], "test_groups": ["zone02"]}
    config = {"chip_set": "chips", "split": regions | groups, "train": TRAIN | {"depth": 2}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    patterns = ("--images", "images/*.tif", "--masks", "masks/*.tif", "--classes", "land", "water")
    steps = [
        shlex.join((PROGRAM, "import", "chips", *patterns)),
        shlex.join(("exec", *RUN, "--", "results/metrics.json")),
    ]
    # In a file, as the command line of a shell would name what it starts.
    (folder / "import_and_run").write_text("\n".join(("set -e", *steps, "")))
    victims = ("import", "import", *BY_SNAKEMAKE)
    return Workflow("snakemake", folder, ("sh", "import_and_run"), victims, ("chips", "results"))


def trials(folder: Path, _: Loopback) -> Workflow:
    """A run of three trials with a rung, to the scores of a map that is made in parts, and to its products."""
    sample_by_snakemake(folder, _)
    path = folder / "config.yaml"
    space = {"learning_rate": [0.001, 0.004, 0.008]}
    several = {"trials": {"space": space, "rungs": [0.5]}, "map_parts": 2, "with_products": True}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | several))
    targets = ("results/metrics.json", "results/products/manifest.json", "results/trials.html")
    return Workflow("snakemake", folder, (*RUN, "--", *targets))


def members(folder: Path, web: Loopback) -> Workflow:
    """A run that packs 20 chips itself and trains two members, to the scores of their maps."""
    chip_set(folder, web)
    (folder / "import_and_run").unlink()
    path = folder / "config.yaml"
    packed = {"images": "images/*.tif", "masks": "masks/*.tif", "classes": ["land", "water"]}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"import": packed, "members": 2}))
    return Workflow("snakemake", folder, (*RUN, "--", "results/metrics.json"), outputs=("chips", "results"))


def zones(folder: Path, _: Loopback) -> Workflow:
    """A run to the scores of the maps of two UTM zones."""
    folder.mkdir(parents=True)
    two_zones.write_project(folder)
    config = two_zones.CONFIG | {"train": TRAIN | {"epochs": 2, "depth": 2}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return Workflow("snakemake", folder, (*RUN, "--", "results/metrics.json"))


def zarr_assets(folder: Path, web: Loopback) -> Workflow:
    """A run to the tiles of two scenes whose assets are Zarr arrays of a slow server."""
    folder.mkdir(parents=True)
    if not (web.folder / "catalog.json").exists():
        _serve_zarr_assets(web)
    place = {"bbox": [15.002, 46.035, 15.03, 46.05], "crs": "utm", "resolution": 10}
    search = {"url": f"{web.url}/catalog.json", "assets": ["blue", "red", "scl"]} | place
    config = {
        "results": "results",
        "state": "state",
        "search": search,
        "preprocess": {"bands": ["blue", "red"], "chunk": 64, "shard": 128},
        "label": {"source": "labels.tif", "classes": ["a", "b"]},
        "split": {"block": 64, "chip": 32, "buffer": 8},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(web.folder / "labels.tif", folder)
    tiles = [f"results/tiles/scene{number}.zarr/manifest.json" for number in (0, 1)]
    return Workflow("snakemake", folder, (*RUN, "--", *tiles), ("group", "run", "snakemake", "stage"))


def _serve_zarr_assets(web: Loopback) -> None:
    """Write a catalog, Zarr stores and labels into the folder of a server, whose chunks take 50 ms each."""
    catalog, shape = Catalog(web.folder), (256, 256)
    place = {"proj:epsg": 32633, "proj:transform": [STEP, 0.0, LEFT, 0.0, -STEP, TOP]}
    for number in (0, 1):
        dice = np.random.default_rng(number)
        bands = {name: dice.integers(1, 5000, shape).astype(np.uint16) for name in ("blue", "red")}
        bands["scl"] = np.full(shape, 4, np.uint8)
        day = {"datetime": f"2023-08-0{number + 1}T10:00:00Z"}
        item = catalog.add(f"scene{number}", bands, shape=shape, properties=day)
        for name, pixels in bands.items():
            path = f"scene{number}.zarr/r10m/{name}"
            attributes = place | {"_ARRAY_DIMENSIONS": ["y", "x"]}
            form = {"chunks": (32, 32), "fill_value": 0, "zarr_format": 2, "attributes": attributes}
            array = zarr.create_array(web.folder, name=path, shape=shape, dtype=pixels.dtype, **form)
            array[...] = pixels
            href = {"href": f"{web.url}/{path}", "type": "application/vnd+zarr"}
            item["assets"][name] = href | {"raster:bands": item["assets"][name]["raster:bands"]}
    shutil.copy(web.folder / "s0/scl.tif", web.folder / "labels.tif")
    catalog.write()
    web.random_fault = lambda _: Fault(pause=0.05)


PROJECTS = {
    "snakemake": sample_by_snakemake,
    "cwltool": sample_by_cwltool,
    "chip-set": chip_set,
    "trials": trials,
    "members": members,
    "two-zones": zones,
    "zarr-assets": zarr_assets,
}
