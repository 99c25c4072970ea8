"""What a store costs that crosses steps of Toil: `python benchmarks/toil_stores.py FOLDER TOIL_CWL_RUNNER [ROUNDS]`.

The same 8,000 chunks as eopipe writes them (in shards) and each in a file, beside as many bytes in 30 files.
A workflow of two steps hands each from the first to the second; medians of rounds that take turns, the files once. The
folder is made.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import zarr

BANDS, EDGE, CHUNK, SHARD = 5, 1440, 36, 720
TOOL = """\
cwlVersion: v1.2
class: CommandLineTool
baseCommand: [cp, -r]
inputs:
  store: {type: Directory, inputBinding: {position: 1}}
  name: {type: string, inputBinding: {position: 2}}
outputs:
  made: {type: Directory, outputBinding: {glob: $(inputs.name)}}
"""
FLOW = """\
cwlVersion: v1.2
class: Workflow
inputs: {store: Directory}
outputs: {made: {type: Directory, outputSource: second/made}}
steps:
  first: {run: tool.cwl, in: {store: store, name: {default: first}}, out: [made]}
  second: {run: tool.cwl, in: {store: first/made, name: {default: second}}, out: [made]}
"""


def stores(folder: Path) -> dict[str, Path]:
    """The same pixels in three ways."""
    pixels = np.random.default_rng(0).integers(0, 4000, (BANDS, EDGE, EDGE), dtype=np.uint16)
    made = {"30 files": folder / "30", "8,000 chunks in shards": folder / "shards", "8,000 files": folder / "files"}
    (folder / "30").mkdir()
    for number, part in enumerate(np.array_split(pixels.ravel(), 30)):
        (folder / f"30/{number}.bin").write_bytes(part.tobytes())
    for place, shards in ((folder / "shards", (1, SHARD, SHARD)), (folder / "files", None)):
        zarr.create_array(place, data=pixels, chunks=(1, CHUNK, CHUNK), shards=shards, compressors=None)
    return made


def seconds(runner: str, folder: Path, store: Path) -> float:
    """Time of the workflow with a job store of its own."""
    room = folder / "room"
    room.mkdir()
    (folder / "job.yml").write_text(f"store: {{class: Directory, path: {store}}}\n")
    places = ["--jobStore", room / "jobs", "--workDir", room, "--coordinationDir", room, "--outdir", room / "out"]
    line = [runner, *places, folder / "flow.cwl", folder / "job.yml"]
    # Its workers are commands that lie beside it.
    own = os.environ | {"PATH": f"{Path(runner).parent}:{os.environ['PATH']}"}
    start = time.monotonic()
    done = subprocess.run(line, env=own, capture_output=True, text=True, check=False)
    took = time.monotonic() - start
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    shutil.rmtree(room)
    return took


def main(folder: Path, runner: str, rounds: int) -> None:
    """Print the median of each and its ratio to 30 files."""
    folder.mkdir(parents=True)
    folder = folder.resolve()
    (folder / "tool.cwl").write_text(TOOL)
    (folder / "flow.cwl").write_text(FLOW)
    made = stores(folder)
    times: dict[str, list[float]] = {name: [] for name in made}
    for number in range(rounds):
        for name, store in made.items():
            # Once is enough of what takes minutes.
            if not number or store.name != "files":
                times[name].append(seconds(runner, folder, store))
    least = median(times["30 files"])
    for name, store in made.items():
        files = sum(path.is_file() for path in store.rglob("*"))
        print(f"| {name} | {files} | {median(times[name]):.1f} | {median(times[name]) / least:.2f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5)
