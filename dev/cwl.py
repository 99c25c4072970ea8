"""The CWL v1.2 tool of a stage, its resources, and the overrides for containers and GPUs.

CWL cannot measure its inputs, so a tool asks for what the formulas of `workflow/rules/*.smk` give at one size; a test
compares the figures, and larger runs override them (docs/cwl.md).
"""

from dataclasses import dataclass
from typing import Any

from dev.app_package import ABOUT, HOME, IMAGE, TEAM
from eopipe import __version__
from eopipe.contract import STAGES, Input, Output, Port, Stage, is_path

KINDS = {int: "int", float: "double", str: "string", bool: "boolean"}
NETWORK = ("search", "fetch")
ON_GPU = ("train", "predict")
NAMESPACES = {
    "edam": "http://edamontology.org/",
    "iana": "https://www.iana.org/assignments/media-types/",
    "s": "https://schema.org/",
}
# What a stage does in the words of EDAM: query, retrieval, standardisation, aggregation, annotation, splitting,
# modelling, prediction, statistics, conversion, visualisation, deposition.
INTENTS = {
    "search": "operation_0224",
    "fetch": "operation_2422",
    "preprocess": "operation_3435",
    "composite": "operation_3436",
    "label": "operation_0226",
    "split": "operation_3359",
    "train": "operation_2426",
    "predict": "operation_2423",
    "evaluate": "operation_2238",
    "export": "operation_3434",
    "report": "operation_0337",
    "catalog": "operation_3431",
    "crate": "operation_3431",
}
# The size that the formulas are reckoned for: MB of inputs, scenes; and tries, of which the last asks for most.
MEGABYTES, SCENES, TRIES = 1000, 100, 3


@dataclass(frozen=True)
class Needs:
    """MB of memory and minutes at the first try; cores (a number, or the input that tells it), and cores that help."""

    memory: int
    minutes: int
    cores: int | str = 1
    most_cores: int | str = 1
    # A training goes on where it was stopped: no try needs more time.
    grows: bool = True

    @property
    def limit_s(self) -> int:
        """Seconds that the last try has."""
        return 60 * self.minutes * (TRIES if self.grows else 1)


PROCESSES, THREADS = "$(inputs.processes)", "$(inputs.threads)"
NEEDS = {
    "search": Needs(1000, 10),
    "fetch": Needs(1000, 60),
    "preprocess": Needs(1500, 20, most_cores=4),
    "composite": Needs(1512, 11),
    "label": Needs(1500, 20),
    "split": Needs(2000, 110),
    # The memory of two processes, as in the demo.
    "train": Needs(5048, 160, cores=PROCESSES, most_cores=PROCESSES, grows=False),
    "predict": Needs(3000, 120, cores=THREADS, most_cores=THREADS),
    "evaluate": Needs(3000, 40),
    "export": Needs(2500, 20),
    "report": Needs(2000, 30),
    "catalog": Needs(1000, 30),
    "crate": Needs(1000, 21),
}


def tool(definition: Stage) -> dict[str, Any]:
    """The CWL v1.2 tool of a stage."""
    outputs = definition.of(Output)
    return {
        "cwlVersion": "v1.2",
        "class": "CommandLineTool",
        "$namespaces": NAMESPACES,
        "label": f"eopipe {definition.name}",
        "doc": definition.summary,
        "intent": [f"edam:{INTENTS[definition.name]}"],
        "s:license": ABOUT["s:license"],
        # Without a class: a reader of CWL looks for one among its own.
        "s:author": [{key: value for key, value in TEAM.items() if key != "class"}],
        "requirements": _requirements(definition.name),
        "hints": {"SoftwareRequirement": {"packages": {"eopipe": {"version": [__version__], "specs": [HOME]}}}},
        "baseCommand": ["eopipe", definition.name],
        "inputs": {_name(p): _input(p) for p in definition.ports},
        "outputs": {k: v for p in outputs for k, v in _outputs(p).items()} | _record(outputs[0]),
    }


def overrides() -> dict[str, Any]:
    """Files for `--overrides`: a container for every tool, a GPU for those that can use one."""
    image = {"DockerRequirement": {"dockerPull": IMAGE}}
    gpu = {"cudaVersionMin": "12.0", "cudaComputeCapability": "7.0", "cudaDeviceCountMin": 1, "cudaDeviceCountMax": 1}
    return {
        "docker": _override(STAGES, image),
        "gpu": _override(ON_GPU, {"cwltool:CUDARequirement": gpu}),
    }


def _override(stages: tuple[str, ...], requirements: dict[str, Any]) -> dict[str, Any]:
    # Engines read the names as beside the workflow or tool that they run.
    return {
        "$namespaces": {"cwltool": "http://commonwl.org/cwltool#"},
        "cwltool:overrides": {f"{name}.cwl": {"requirements": requirements} for name in stages},
    }


def _requirements(name: str) -> dict[str, Any]:
    needs = NEEDS[name]
    cores = {"coresMin": needs.cores, "coresMax": needs.most_cores}
    return {
        "NetworkAccess": {"networkAccess": name in NETWORK},
        "ResourceRequirement": cores | {"ramMin": needs.memory, "ramMax": TRIES * needs.memory},
        "ToolTimeLimit": {"timelimit": needs.limit_s},
        "LoadListingRequirement": {"loadListing": "no_listing"},
        # An engine's cache looks at the command, not at the program behind it.
        "EnvVarRequirement": {"envDef": {"EOPIPE_VERSION": __version__}},
    }


def _name(port: Port) -> str:
    return f"{port.name}_name" if isinstance(port.mark, Output) else port.name


def _type(port: Port) -> Any:
    if isinstance(port.mark, Input):
        kind: Any = ["File", "Directory"] if port.mark.mixed else "Directory" if port.mark.folder else "File"
    else:
        # Two enums of two documents are never the same type in CWL, so words are strings.
        kind = "string" if is_path(port) or port.choices else KINDS[port.base]
    kind = {"type": "array", "items": kind} if port.is_list else kind
    if port.optional:
        return ["null", *(kind if isinstance(kind, list) else [kind])]
    return kind


def _format(mark: Input | Output) -> dict[str, str]:
    """The format of a file as CWL wants it: an address, so without the parameters of a media type."""
    named = mark.format.partition(";")[0]
    return {"format": named if named.startswith("edam:") else f"iana:{named}"} if named else {}


def _input(port: Port) -> dict[str, Any]:
    doc = port.mark.doc + (f" ({' or '.join(port.choices)})" if port.choices else "")
    made: dict[str, Any] = {"type": _type(port), "label": port.name.replace("_", " "), "doc": doc}
    if isinstance(port.mark, Input):
        made |= _format(port.mark)
    if isinstance(port.mark, Output):
        made["default"] = port.mark.name
    elif not port.required and port.default is not None:
        made["default"] = list(port.default) if port.is_list else port.default
    made["inputBinding"] = {"prefix": port.flag}
    return made


def _outputs(port: Port) -> dict[str, Any]:
    mark = port.mark
    assert isinstance(mark, Output)
    glob = f"$(inputs.{port.name}_name)"
    kind = {"type": "Directory"} if mark.folder else {"type": "File"} | _format(mark)
    found = {port.name: kind | {"label": port.name, "doc": mark.doc, "outputBinding": {"glob": glob}}}
    if mark.each:
        each = {"type": "File[]", "label": f"{port.name}, one by one", "doc": "for a scatter"} | _format(mark)
        found[f"{port.name}_each"] = each | {"outputBinding": {"glob": f"{glob}/{mark.each}"}}
    return found


def _record(first: Port) -> dict[str, Any]:
    told = {"type": "File", "format": "iana:application/json", "label": "run record", "doc": "what the job did"}
    return {"record": told | {"outputBinding": {"glob": f"$(inputs.{first.name}_name).run.json"}}}
