"""Steps that successive halving saves, and whether it chooses the same trial: `python benchmarks/halving.py FOLDER`.

Twelve trials of the sample (24 dates as seasonal medians, as the demo has them) are trained to their end, and with two
rungs, for four seeds of the weights. Both runs of a seed share tiles, labels and split, since they are in one project.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
SPACE = {"width": [4, 8, 16], "learning_rate": [0.0005, 0.002, 0.008, 0.03]}
RUNGS, KEEP, SEEDS, STEPS = [0.25, 0.5], 0.33, range(4), 400
SCORE = "miou"


def main() -> None:
    """Train all, and print a table."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    (folder / "sample").symlink_to(ROOT / "sample")
    print(
        "| seed | steps of all | steps with rungs | share | chosen of all | with rungs | its rank and mIoU among all |"
    )
    print("|---:|---:|---:|---:|---|---|---|")
    for seed in SEEDS:
        whole, halved = (leaderboard(folder, seed, rungs) for rungs in ([], RUNGS))
        ranks = {row["name"]: rank for rank, row in enumerate(whole["trials"], 1)}
        scores = {row["name"]: row["scores"][SCORE] for row in whole["trials"]}
        steps = [sum(row["steps"] for row in document["trials"]) for document in (whole, halved)]
        best, chosen = whole["chosen"], halved["chosen"]
        place = f"{ranks[chosen]}: {scores[chosen]:.3f} (best {scores[best]:.3f}, worst {min(scores.values()):.3f})"
        row = [seed, *steps, f"{steps[1] / steps[0]:.2f}", settings(whole, best), settings(halved, chosen), place]
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def leaderboard(folder: Path, seed: int, rungs: list[float]) -> dict[str, Any]:
    """The document of the trials of a seed."""
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    config["train"] |= {"seed": seed, "steps": STEPS, "processes": 1}
    config["trials"] = {"space": SPACE, "rungs": rungs, "keep": KEEP}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "eopipe", "run", "--cores", "2", "--quiet", "--", "results/trials.json"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    document: dict[str, Any] = json.loads((folder / "results/trials.json").read_text())
    return document


def settings(document: dict[str, Any], name: str) -> str:
    """The settings of a trial as text."""
    row = next(row for row in document["trials"] if row["name"] == name)
    return ", ".join(f"{key} {value}" for key, value in sorted(row["settings"].items()))


if __name__ == "__main__":
    main()
