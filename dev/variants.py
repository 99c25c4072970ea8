"""Functions of the package that run for one only of a grid, several cells and a chip set; modules that a stage takes.

    python -m dev.variants [CHECKOUT]

Three small runs with the same settings differ in where their chips are. Each function that any of their processes
calls is noted, so that what a variant needs for itself is counted, not what its code looks like. The modules with a
function that `split` or `train` calls are those that a reader passes through who follows the stage to its end.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
# Imported by each Python process of a run.
HOOK = """
import atexit, inspect, os, sys, threading

called = {}

def note(frame, event, argument):
    if event == "call":
        called[id(frame.f_code)] = frame.f_code

def write():
    sys.setprofile(None)
    root = os.environ["EOPIPE_ROOT"] + "/eopipe/"
    # Modules and classes run too, when they are imported.
    functions = (code for code in [*called.values()] if code.co_flags & inspect.CO_OPTIMIZED)
    codes = [code for code in functions if code.co_filename.startswith(root)]
    name = sys.argv[1] if len(sys.argv) > 1 and os.path.basename(sys.argv[0]) == "eopipe" else "other"
    with open(os.path.join(os.environ["EOPIPE_CALLED"], f"{name}-{os.getpid()}.txt"), "w") as file:
        file.writelines(f"{code.co_filename[len(root):]}:{code.co_qualname}\\n" for code in codes)

atexit.register(write)
threading.setprofile(note)
sys.setprofile(note)
"""


def write_cells(folder: Path, crs: str) -> None:
    """The landscape of the tests across a border of UTM zones, in a cell for each or in a grid of one."""
    import_module("two_zones").write_project(folder)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["search"]["crs"] = crs
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


def write_chip_set(folder: Path) -> None:
    """Pairs of images and masks of the tests."""
    import_module("chip_files").write_world(folder / "files", 6, 20)
    sets = {"root": "files", "images": "images/*.tif", "masks": "masks/*.tif", "classes": ["a", "b"], "group": "^[^-]+"}
    split = {"method": "group", "fractions": [0.6, 0.2, 0.2], "allow": ["near-duplicate: made-up patterns"]}
    train = import_module("two_zones").CONFIG["train"]
    config = {"chip_set": "set", "import": sets, "split": split, "train": train}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


VARIANTS: dict[str, Callable[[Path], None]] = {
    "grid": lambda folder: write_cells(folder, "EPSG:32633"),
    "cells": lambda folder: write_cells(folder, "utm"),
    "chip set": write_chip_set,
}


def called_functions(root: Path, folder: Path, write: Callable[[Path], None]) -> dict[str, set[str]]:
    """The functions, `module file:name`, that the processes of a run call, by the command of the process."""
    project, hook, called = folder / "project", folder / "hook", folder / "called"
    for path in (project, hook, called):
        path.mkdir(parents=True)
    write(project)
    (hook / "sitecustomize.py").write_text(HOOK)
    noted = {"PYTHONPATH": f"{hook}:{root}", "EOPIPE_CALLED": str(called), "EOPIPE_ROOT": str(root)}
    line = [str(Path(sys.executable).parent / "eopipe"), "run", "--configfile", "config.yaml", "--cores", "2"]
    subprocess.run(line, cwd=project, env=os.environ | noted, check=True)
    of_commands: dict[str, set[str]] = {}
    for path in called.iterdir():
        of_commands.setdefault(path.name.partition("-")[0], set()).update(path.read_text().splitlines())
    return of_commands


def main() -> None:
    """Print for each variant the number of functions that run for it alone, and the modules that have most of them."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT).resolve()
    sys.path.append(str(root / "tests"))
    with tempfile.TemporaryDirectory() as folder:
        of_commands = {name: called_functions(root, Path(folder, name), write) for name, write in VARIANTS.items()}
    called = {name: set[str]().union(*of_run.values()) for name, of_run in of_commands.items()}
    number = Counter(function for functions in called.values() for function in functions)
    print(f"{len(number)} functions run for any of them")
    for name, functions in called.items():
        alone = [function for function in functions if number[function] == 1]
        most = Counter(function.partition(":")[0] for function in alone).most_common(8)
        print(f"{name}: {len(alone)} alone; " + ", ".join(f"{module} {count}" for module, count in most))
    for stage in ("split", "train"):
        passed = [len({function.partition(":")[0] for function in of_run[stage]}) for of_run in of_commands.values()]
        print(f"{stage}: functions of {', '.join(map(str, passed))} modules")


if __name__ == "__main__":
    main()
