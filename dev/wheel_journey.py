"""`make test-lowest`, `make test-newest`: an installed wheel goes from `eopipe init` to the report, on two scenes.

It runs in the environment that has the wheel, in an empty folder outside of the checkout.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
SCENES = ("S2_ROMANIA_20170412", "S2_ROMANIA_20170621")
COMMANDS = ["eopipe check", "eopipe plan", "eopipe run"]


def main() -> None:
    """Run the commands that `eopipe init` prints; stops at the first sentence that is false."""
    with tempfile.TemporaryDirectory() as folder:
        _journey(Path(folder))
    print("The installed wheel went from init to the report.")


def _journey(folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(home), "CONDOR_CONFIG": os.devnull, "LANG": "C.UTF-8"}

    def run(command: str, cwd: Path) -> str:
        print(f"$ {command}", flush=True)
        done = subprocess.run(
            shlex.split(command), cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{done.stdout}\n{command} ended with {done.returncode}")
        return done.stdout

    output = run("eopipe init forest --sample", folder)
    commands = [line.strip() for line in output.splitlines() if line.startswith("  eopipe ")]
    project = folder / "forest"
    _hold(commands == COMMANDS, f"init prints {commands}, not {COMMANDS}")
    config = project / "config.yaml"
    settings = yaml.safe_load(config.read_text())
    # The whole sample is the demo's.
    settings["search"]["ids"] = list(SCENES)
    settings["train"] |= {"epochs": 2}
    config.write_text(yaml.safe_dump(settings))
    module = run("python -c 'import eopipe; print(eopipe.__file__)'", project)
    _hold(str(ROOT / "eopipe") not in module, f"{module} is of the checkout, not of the wheel")
    for command in commands:
        run(command, project)
    crate = project / "results/crate/ro-crate-metadata.json"
    _hold((project / "results/report.html").is_file(), "there is no report")
    _hold(str(ROOT) not in crate.read_text(), "the crate names the checkout")


def _hold(is_true: bool, sentence: str) -> None:
    if not is_true:
        sys.exit(sentence)


if __name__ == "__main__":
    main()
