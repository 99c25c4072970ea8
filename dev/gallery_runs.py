"""The projects of the gallery: on the sample, or with scenes made up by the makers of the tests."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from eopipe.tasks.task import Measure

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "config/examples"
# Scenes of the developers, as the example names them.
CLOUDS = (ROOT / yaml.safe_load((EXAMPLES / "clouds-33t.yaml").read_text())["search"]["catalog"]).resolve()
CORES = 2
MEASURES: dict[str, tuple[Measure, ...]] = {
    "segmentation": ("accuracy", "miou"),
    "classification": ("accuracy", "f1_macro"),
    "multilabel": ("f1_micro", "mean_average_precision"),
    "regression": ("rmse", "r2"),
}
YEARS = "2018-04-01/2020-03-31"
RADAR_DAYS = ("2023-04-05", "2023-04-17", "2023-05-11", "2023-05-23", "2023-06-04", "2023-06-16")
# Backscatter in dB of (other, forest), and the looks of the speckle.
BACKSCATTER, LOOKS = {"vv": (-10.5, -8.5), "vh": (-16.5, -13.5)}, 4.4


@dataclass(frozen=True)
class Example:
    """A project of the gallery. `write` makes its folder; `source` is the file that its page links, below the root."""

    name: str
    sensor: str
    data: str
    source: str
    write: Callable[[Path], None]
    # Where the first comment of the source does not say it.
    shows: str = ""
    # A folder that is not distributed: without it the example is not run again.
    catalog: Path | None = None

    @property
    def sentence(self) -> str:
        """What the example shows."""
        return self.shows or first_sentence(ROOT / self.source)


def first_sentence(path: Path) -> str:
    """The first sentence of the first comment of a config, or of the docstring of a module."""
    text = path.read_text()
    if path.suffix == ".py":
        return text.split('"""')[1].splitlines()[0]
    comments = re.search(r"(?m)^(?:# (?!yaml-language-server).*\n)+", text)
    assert comments is not None, path
    return re.split(r"(?<=\.) ", " ".join(comments[0].replace("# ", "").split()))[0]


def of_tests(name: str) -> Any:
    """A module below tests/, which makes scenes up."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.append(str(ROOT / "tests"))
    return import_module(name)


def on_sample(source: str) -> Callable[[Path], None]:
    """Writes the project of a config that reads the sample."""

    def write(folder: Path) -> None:
        config = yaml.safe_load((ROOT / source).read_text()) | {"results": "results", "state": "state"}
        (folder / "sample").symlink_to(ROOT / "sample")
        (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))

    return write


def write_clouds(folder: Path) -> None:
    """Write the project of the example with scenes that are not distributed."""
    config = yaml.safe_load((EXAMPLES / "clouds-33t.yaml").read_text()) | {"results": "results", "state": "state"}
    config["search"]["catalog"] = str(CLOUDS)
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def write_next_year(folder: Path) -> None:
    """Write the project that maps other years with the model of the demo, which runs first where it has not."""
    finish("demo", folder.parent)
    folder.rmdir()
    command("init", folder.name, "--from", "demo", "--datetime", YEARS, cwd=folder.parent)


def write_radar(folder: Path) -> None:
    """Write simulated Sentinel-1 scenes, labels and the config of the example, for a smaller area."""
    from pyproj import Transformer

    scenery = of_tests("scenery")
    edge, left, top, crs = 320, 460_000, 5_095_000, "EPSG:32633"
    x, y = np.meshgrid(left + 10 * (np.arange(edge) + 0.5), top - 10 * (np.arange(edge) + 0.5))
    places = Transformer.from_crs(crs, "EPSG:4326", always_xy=True).transform(x, y)
    classes_at = of_tests("two_zones").classes_at
    # Forests, and fields that are wet or dry.
    forest, wet = classes_at(*places), classes_at(places[0] + 1, places[1])
    dice, catalog = np.random.default_rng(1), scenery.Catalog(folder / "catalog")
    for day in RADAR_DAYS:
        bands = {}
        for band, levels in BACKSCATTER.items():
            decibel = np.array(levels)[forest] + 2 * wet * (1 - forest) + dice.normal(0, 0.5)
            bands[band] = (10 ** (decibel / 10) * dice.gamma(LOOKS, 1 / LOOKS, (edge, edge))).astype(np.float32)
        place = {"shape": (edge, edge), "left": left, "top": top, "crs": crs, "nodata": -32768}
        properties = {"datetime": f"{day}T05:10:00Z", "platform": "SENTINEL-1A", "sar:polarizations": ["VV", "VH"]}
        item = catalog.add(f"S1A_IW_{day}", bands, properties=properties, **place)
        item["collection"] = "sentinel-1-rtc"
        for asset in item["assets"].values():
            asset["raster:bands"] = [{"nodata": -32768}]
    catalog.write()
    scenery.write_raster(folder / "labels.tif", forest.astype(np.uint8), left=left, top=top, crs=crs, nodata=255)
    config = yaml.safe_load((EXAMPLES / "sentinel-1-rtc.yaml").read_text())
    del config["search"]["url"], config["label"]["attribute"]
    config["search"] |= {"catalog": "catalog", "bbox": [14.486, 45.982, 14.520, 46.005]}
    config["label"] |= {"source": "labels.tif"}
    config["split"] |= {"block": 64, "chip": 32}
    config |= {"results": "results", "state": "state"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


SAMPLE = "the embedded sample, real scenes"
MADE_UP = "**made-up scenes**: places, classes and pixel values are simulated, so the scores say that the run works"
LOCAL = ("forest-chips", "tree-cover-labels", "tree-cover-values")
# In the order of the page.
SHOWN = (
    Example("demo", "Sentinel-2", SAMPLE, "config/config.yaml", on_sample("config/config.yaml")),
    *(
        Example(name, "Sentinel-2", SAMPLE, source, on_sample(source))
        for name, source in ((name, f"config/examples/{name}.yaml") for name in LOCAL)
    ),
    Example(
        "next-year",
        "Sentinel-2",
        f"{SAMPLE}, of {YEARS.replace('/', ' to ')}: some of the training; without labels, so nothing is scored",
        "docs/mapping.md",
        write_next_year,
        f"The finished model of the demo maps other dates: `eopipe init next-year --from demo --datetime {YEARS}`.",
    ),
    Example(
        "clouds-33t",
        "Sentinel-2",
        "real scenes, 2 tiles of 110 km; **the labels are the output of an algorithm**, the scene classification of "
        "Sen2Cor, so the scores say how well it is reproduced. The scenes are not distributed with eopipe; two of ten "
        "maps are shown",
        "config/examples/clouds-33t.yaml",
        write_clouds,
        catalog=CLOUDS,
    ),
    Example(
        "sentinel-1-rtc",
        "Sentinel-1",
        f"{MADE_UP}; the config with a catalog on disk, an area of 3 km and blocks of 64 pixels",
        "config/examples/sentinel-1-rtc.yaml",
        write_radar,
    ),
    Example(
        "two-zones",
        "two bands of 10 m",
        f"{MADE_UP}; each zone has a map of its own",
        "tests/two_zones.py",
        lambda folder: of_tests("two_zones").write_project(folder),
    ),
)
PROVIDER = "needs the network and labels of your own; a test runs its search, scaling and mask on made-up items"
NOT_SHOWN = {
    "cdse-sentinel-2": "needs the network, an account and labels of your own; a test runs its search on made-up items",
    **dict.fromkeys(("cop-dem", "hls-l30", "hls-s30", "landsat-c2-l2", "sentinel-2-l2a"), PROVIDER),
}


def command(*arguments: str, cwd: Path) -> None:
    """Run `eopipe` of this interpreter and this checkout; what it prints is in log.txt where it fails."""
    programs, log = Path(sys.executable).parent, cwd / "log.txt"
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    with log.open("w") as file:
        line: list[str | Path] = [programs / "eopipe", *arguments]
        done = subprocess.run(line, cwd=cwd, env=os.environ | variables, stdout=file, stderr=file, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with code {done.returncode}:\n{log.read_text()[-4000:]}")


def finish(name: str, cache: Path) -> Path:
    """The folder of an example: written, planned and run unless it has ended there; times.json has its times."""
    example, folder = next(example for example in SHOWN if example.name == name), cache / name
    if (folder / "times.json").is_file():
        return folder
    # The time of a run that was interrupted does not count for the example.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    example.write(folder)
    command("plan", "config.yaml", cwd=folder)
    load, start, before = os.getloadavg()[0], time.monotonic(), _cpu_s()
    command("run", "--configfile", "config.yaml", "--cores", str(CORES), cwd=folder)
    times = {"wall_s": round(time.monotonic() - start), "cpu_s": round(_cpu_s() - before), "load": round(load, 1)}
    (folder / "times.json").write_text(json.dumps(times))
    return folder


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def planned(folder: Path) -> list[int]:
    """Inodes, bytes and CPU seconds by the plan of a project."""
    plan = json.loads((folder / "plan/plan.json").read_text())
    hours = sum(row["cpu_hours"] for row in plan["needs"])
    return [plan["totals"]["inodes"], plan["totals"]["bytes"], round(3600 * hours)]


def written(folder: Path) -> list[int]:
    """Inodes and bytes that a run left, each hard link once, without the weights of models."""
    from eopipe.planning.disk_forecast import existing_files

    with chdir(folder):
        return [*existing_files({"results": "results", "state": "state"})]


def model_of(folder: Path) -> Path:
    """The model of a project: of its run, or a finished one."""
    return next(path for path in (folder / "results/model", folder / "model") if path.is_dir())


def measured(folder: Path) -> dict[str, Any]:
    """Task, classes, scenes and main scores of a run that has ended, and what it wrote beside its plan."""
    import eopipe
    from eopipe.models.model_folder import read_model_card
    from eopipe.reporting.scores import measures_of
    from eopipe.reporting.wording import scored_size
    from eopipe.tasks import HAVE_UNIT

    card, results = read_model_card(model_of(folder)), folder / "results"
    record = {"task": card["task"], "classes": card["classes"], "scenes": len([*results.glob("items/*.geojson")])}
    record |= {"planned": planned(folder), "written": written(folder)}
    if not (results / "metrics.json").is_file():
        return record | {"measures": [], "scores": []}
    metrics = eopipe.read_metrics(results)
    names, unit = dict(measures_of(metrics.task)), metrics.content.unit
    main: dict[str, str] = {
        name: f"{names[name]}{f' ({unit})' * (name in HAVE_UNIT)}" for name in MEASURES[metrics.task]
    }
    overall = [score for score in metrics.scores if not score.class_name and score.name in main]
    overall += [gain for name in main for gain in metrics.gain(name).values()]
    scores = [
        [score.method, main[score.name], *(value if value is None else round(value, 6) for value in score[3:])]
        for score in overall
    ]
    return record | {"tested": scored_size(metrics.content), "measures": [*main.values()], "scores": scores}
