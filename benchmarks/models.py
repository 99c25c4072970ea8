"""The default model, its network alone, and baselines: `python benchmarks/models.py [--seeds 4] [--config CONFIG …]`.

Whole runs up to the scores, with no setting under `train` but the seed, and for the network alone `averaged_with`: of
the embedded sample in both directions, of two made-up landscapes, and of configs that are given. In one landscape the
classes have the same values and another texture, in the other the same values in another season. It prints accuracy and
mIoU, the mean and the range over the seeds; the baselines are from the first seed, since nothing but their own seed
changes them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]
from landscape import field  # noqa: E402
from scenery import Catalog, write_raster  # noqa: E402

from eopipe.reporting.wording import BASELINES  # noqa: E402

EDGE, DATES = 160, ("2023-04-10", "2023-07-10", "2023-10-10")


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--config", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    names = ("default", "network alone", *BASELINES.values(), "majority")
    print(f"| set | {' | '.join(names)} | ECE |\n|---|{'---|' * (len(names) + 1)}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for title, config in configs(Path(name), options.config):
            runs = {
                model: [scores(Path(name), config, settings, seed) for seed in range(options.seeds)]
                for model, settings in (("default", {}), ("network alone", {"averaged_with": ["none"]}))
            }
            rows = {model: [run["model"] for run in of_model] for model, of_model in runs.items()}
            rows |= {title: [runs["default"][0][key]] for key, title in BASELINES.items()}
            rows |= {"majority": [runs["default"][0]["majority"]]}
            ece = [run["calibration"]["ece"] for run in runs["default"] if "calibration" in run]
            cells = [f"{_text(rows[name], 'accuracy')} / {_text(rows[name], 'miou')}" for name in names]
            print(f"| {title} | {' | '.join(cells)} | {f'{np.mean(ece):.3f}' if ece else '-'} |", flush=True)


def _text(rows: list[dict[str, Any]], key: str) -> str:
    """The mean, and the range where there are several."""
    values = [row[key] for row in rows]
    mean = f"{np.mean(values):.3f}"
    return f"{mean} ({min(values):.3f}-{max(values):.3f})" if len(values) > 1 else mean


def configs(folder: Path, others: list[Path]) -> list[tuple[str, dict[str, Any]]]:
    """Names and configs of all sets; paths in them are absolute."""
    sample = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    sample["search"]["catalog"], sample["label"]["source"] = str(ROOT / "sample"), str(ROOT / sample["label"]["source"])
    sets = [(f"sample, {method}", sample | {"split": sample["split"] | {"method": method}}) for method in DIRECTIONS]
    sets += [(f"made up, {kind}", made_up(folder / kind, kind)) for kind in ("texture", "season")]
    for path in others:
        config = yaml.safe_load(path.read_text())
        config["search"]["catalog"] = str((path.parent / config["search"]["catalog"]).resolve())
        if config.get("label", {}).get("source"):
            config["label"]["source"] = str((path.parent / config["label"]["source"]).resolve())
        sets.append((path.stem, config))
    return sets


DIRECTIONS = ("west-east", "east-west")


def made_up(folder: Path, kind: str) -> dict[str, Any]:
    """A landscape of two classes in patches, as a catalog with labels; `kind` is what tells them apart.

    Texture: lines, of one pixel or of two, which have the same values and the same mean and spread around each pixel.
    Season: bright and dark dates, in another order.
    """
    random, label = np.random.default_rng(5), (field(EDGE, 3, 16) > 0).astype("uint8")
    y, x = np.indices((EDGE, EDGE))
    dates, catalog = DATES if kind == "season" else DATES[:1], Catalog(folder / "catalog")
    for number, date in enumerate(dates):
        if kind == "texture":
            is_bright = np.where(label, (x + random.integers(2)) % 2, (x + y) % 2).astype(bool)
        else:
            is_bright = (number + label) % 3 == 0
        bands = {
            band: (1500 + 900 * is_bright + random.normal(0, 250, label.shape)).clip(1).astype("uint16")
            for band in ("red", "nir")
        }
        properties = {"datetime": f"{date}T10:00:00Z"}
        catalog.add(f"scene-{date}", bands, shape=label.shape, properties=properties)
    catalog.write()
    write_raster(folder / "labels.tif", label, nodata=255)
    composite = {"composite": {"method": "median", "stack": "season"}} if kind == "season" else {}
    return composite | {
        "search": {"catalog": str(folder / "catalog"), "assets": ["red", "nir"]},
        "preprocess": {"bands": ["red", "nir"], "mask": "none"},
        "label": {"source": str(folder / "labels.tif"), "classes": ["a", "b"], "codes": [0, 1]},
        "split": {"method": "west-east", "fractions": [0.48, 0.16, 0.36], "chip": 32, "stride": 16},
    }


def scores(folder: Path, config: dict[str, Any], model: dict[str, Any], seed: int) -> dict[str, Any]:
    """The metrics of a run; scenes, tiles and labels are made once for each set."""
    project = folder / f"run-{abs(hash(json.dumps(config, sort_keys=True)))}"
    project.mkdir(exist_ok=True)
    train = {key: value for key, value in config.get("train", {}).items() if key == "task"}
    settings = {"train": train | model | {"seed": seed}, "results": "results", "state": "state"}
    (project / "config.yaml").write_text(yaml.safe_dump(config | settings))
    command = [sys.executable, "-m", "eopipe", "run", "--configfile", "config.yaml", "--cores", "2"]
    done = subprocess.run(
        [*command, "--", "results/metrics.json"], cwd=project, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    metrics: dict[str, Any] = json.loads((project / "results/metrics.json").read_text())
    return metrics


if __name__ == "__main__":
    main()
