import json
import shlex
from pathlib import Path
from snakemake.exceptions import WorkflowError
from eopipe.config import check
from eopipe.contract import STAGES, Input, Knob, Option, stage, to_args
from eopipe.errors import EopipeError
from eopipe.project import summary

try:
    config = check(config)
except EopipeError as error:
    raise WorkflowError(str(error))

RESULTS, STATE = config["results"], config["state"]


wildcard_constraints:
    scene="[A-Za-z0-9_][A-Za-z0-9._-]*",
    map="[A-Za-z0-9_][A-Za-z0-9._-]*",


def words(name, kind):
    """Ports of one kind that the config sets, as quoted words of a command line."""
    ports = [p for p in stage(name).of(kind) if p.name in config[name]]
    return shlex.join(w for p in ports for w in to_args(p, config[name][p.name]))


def options(name):
    """What changes a result: it goes into `params`, so a change reruns the job."""
    return " ".join(filter(None, (words(name, Input), words(name, Option))))


# What changes only speed: looked up by the shell line itself, so a change reruns nothing.
KNOBS = {name: words(name, Knob) for name in STAGES}


def named_files(name):
    """The user's own input files of a stage; a catalog stands for its folder."""
    given = {p.name: config[name][p.name] for p in stage(name).of(Input) if p.mark.user}
    return {k: f"{v}/catalog.json" if Path(v).is_dir() else v for k, v in given.items() if v}


def scenes():
    """Names of the frozen scenes; waits for the search."""
    return sorted(p.stem for p in Path(checkpoints.search.get().output.items).parent.glob("*.geojson"))


def volume(*manifests):
    """MB that published folders hold, as their manifests tell."""
    return sum(row["size"] for m in manifests for row in json.loads(Path(m).read_text())["files"]) // 10**6


def record(output):
    """The run record of the job that made a file, or the folder that a manifest stands for."""
    path = Path(output).parent if Path(output).name == "manifest.json" else Path(output)
    return f"{path}.run.json"
