"""The cost of passing a store between Toil steps: `python benchmarks/toil_stores.py FOLDER TOIL_CWL_RUNNER [ROUNDS]`.

The same 8,000 chunks as eopipe writes them (in shards) and with a file for each chunk, compared with as many bytes in
30 files. A workflow passes each from its first to its second step; prints the medians of alternating rounds, with a
single round for 8,000 files. The folder is created.
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
  copy: {type: Directory, outputBinding: {glob: $(inputs.name)}}
"""
FLOW = """\
cwlVersion: v1.2
class: Workflow
inputs: {store: Directory}
outputs: {copy: {type: Directory, outputSource: second/copy}}
steps:
  first: {run: tool.cwl, in: {store: store, name: {default: first}}, out: [copy]}
  second: {run: tool.cwl, in: {store: first/copy, name: {default: second}}, out: [copy]}
"""


def stores(folder: Path) -> dict[str, Path]:
    """The same pixels in three layouts."""
    pixels = np.random.default_rng(0).integers(0, 4000, (BANDS, EDGE, EDGE), dtype=np.uint16)
    layouts = {"30 files": folder / "30", "8,000 chunks in shards": folder / "shards", "8,000 files": folder / "files"}
    (folder / "30").mkdir()
    for number, part in enumerate(np.array_split(pixels.ravel(), 30)):
        (folder / f"30/{number}.bin").write_bytes(part.tobytes())
    for path, shards in ((folder / "shards", (1, SHARD, SHARD)), (folder / "files", None)):
        zarr.create_array(path, data=pixels, chunks=(1, CHUNK, CHUNK), shards=shards, compressors=None)
    return layouts


def seconds(runner: str, folder: Path, store: Path) -> float:
    """Duration of the workflow with a job store of its own."""
    work = folder / "work"
    work.mkdir()
    (folder / "job.yml").write_text(f"store: {{class: Directory, path: {store}}}\n")
    folders = ["--jobStore", work / "jobs", "--workDir", work, "--coordinationDir", work, "--outdir", work / "out"]
    command = [runner, *folders, folder / "flow.cwl", folder / "job.yml"]
    # The commands of its workers are beside it.
    environment = os.environ | {"PATH": f"{Path(runner).parent}:{os.environ['PATH']}"}
    start = time.monotonic()
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    duration = time.monotonic() - start
    if result.returncode:
        sys.exit(result.stderr[-2000:])
    shutil.rmtree(work)
    return duration


def main(folder: Path, runner: str, rounds: int) -> None:
    """Print the median of each and its ratio to 30 files."""
    folder.mkdir(parents=True)
    folder = folder.resolve()
    (folder / "tool.cwl").write_text(TOOL)
    (folder / "flow.cwl").write_text(FLOW)
    layouts = stores(folder)
    times: dict[str, list[float]] = {name: [] for name in layouts}
    for number in range(rounds):
        for name, store in layouts.items():
            # A single round takes minutes.
            if not number or store.name != "files":
                times[name].append(seconds(runner, folder, store))
    baseline = median(times["30 files"])
    for name, store in layouts.items():
        files = sum(path.is_file() for path in store.rglob("*"))
        print(f"| {name} | {files} | {median(times[name]):.1f} | {median(times[name]) / baseline:.2f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5)
