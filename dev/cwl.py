"""The CWL v1.2 tool of a stage, its resources, and the overrides for containers and GPUs.

CWL cannot measure its inputs, so a tool asks for what the formulas of `workflow/rules/*.smk` give at one size; a test
compares the figures, and larger runs override them (docs/cwl.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from dev.app_package import ABOUT, HOME, IMAGE, TEAM
from eopipe import __version__, errors
from eopipe.contract import STAGES, Input, Output, Port, Stage, is_path

KINDS = {int: "int", float: "double", str: "string", bool: "boolean"}
NETWORK = ("search", "fetch")
ON_GPU = ("train", "calibrate", "predict")
NAMESPACES = {
    "edam": "http://edamontology.org/",
    "iana": "https://www.iana.org/assignments/media-types/",
    "s": "https://schema.org/",
}
# The operation of each stage in EDAM: conversion, query, retrieval, standardisation, aggregation, annotation,
# splitting, modelling, comparison, normalisation, prediction, statistics, conversion, visualisation, deposition.
INTENTS = {
    "import": "operation_3434",
    "search": "operation_0224",
    "fetch": "operation_2422",
    "preprocess": "operation_3435",
    "composite": "operation_3436",
    "label": "operation_0226",
    "split": "operation_3359",
    "train": "operation_2426",
    "choose": "operation_2424",
    "calibrate": "operation_3435",
    "predict": "operation_2423",
    "evaluate": "operation_2238",
    "estimate": "operation_2238",
    "export": "operation_3434",
    "report": "operation_0337",
    "products": "operation_3434",
    "catalog": "operation_3431",
    "crate": "operation_3431",
}
# The exit codes after which the same job may succeed: a server did not answer, or the job was pre-empted.
TEMPORARY = (errors.UpstreamError.code, errors.PreemptedError.code)
# The folder of an unfinished training: it is an input, and, where the job ends before the training, an output.
STATE = ("train", "state")
# The size at which the formulas are evaluated: MB of inputs and scenes; and the number of attempts, whose last one
# requests the most.
MEGABYTES, SCENES, ATTEMPTS = 1000, 100, 3


@dataclass(frozen=True)
class JobNeeds:
    """MB of memory and minutes of the first attempt; minimum and maximum cores, a number or a CWL expression."""

    memory: int
    minutes: int
    cores: int | str = 1
    max_cores: int | str = 1
    # False for a training, which resumes where it was stopped.
    needs_more_time_on_retry: bool = True

    @property
    def limit_s(self) -> int:
        """Seconds of the last attempt."""
        return 60 * self.minutes * (ATTEMPTS if self.needs_more_time_on_retry else 1)


PROCESSES = "$(inputs.processes)"
NEEDS = {
    # A row of slots of a shard for each of two threads, with many bands.
    "import": JobNeeds(3000, 60, max_cores=2),
    "search": JobNeeds(1000, 10),
    "fetch": JobNeeds(1000, 60),
    "preprocess": JobNeeds(1500, 20, max_cores=4),
    "composite": JobNeeds(1512, 11),
    "label": JobNeeds(1500, 20),
    "split": JobNeeds(2000, 110),
    # The memory of two processes, as in the demo.
    "train": JobNeeds(5048, 60, cores=PROCESSES, max_cores=PROCESSES, needs_more_time_on_retry=False),
    "choose": JobNeeds(3000, 30),
    "calibrate": JobNeeds(3000, 120, max_cores=4),
    "predict": JobNeeds(3000, 120, max_cores=4),
    "evaluate": JobNeeds(3000, 40),
    "estimate": JobNeeds(1000, 120),
    "export": JobNeeds(2500, 20),
    "report": JobNeeds(2000, 30),
    "products": JobNeeds(6000, 60),
    "catalog": JobNeeds(1000, 30),
    "crate": JobNeeds(1000, 21),
}


AUTHORS = {
    "s:license": ABOUT["s:license"],
    # Without a class: a CWL parser accepts only its own.
    "s:author": [{key: value for key, value in TEAM.items() if key != "class"}],
}
PARTS_OF_MAP = "parts of each map, which jobs of their own make and another one joins; 1: none"
HINTS = {"SoftwareRequirement": {"packages": {"eopipe": {"version": [__version__], "specs": [HOME]}}}}
SETTINGS = {
    "settings": {
        "type": ["null", "string"],
        "label": "settings of a trial",
        "doc": "options by their names in JSON, in the place of the inputs of these names",
        "inputBinding": {"prefix": "--settings"},
    }
}
CHECKPOINTS = {
    "type": ["null", "Directory"],
    "label": "checkpoints",
    "doc": "checkpoints of a training that did not end, for the input `state`",
    "outputBinding": {"glob": "state"},
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
        **AUTHORS,
        "requirements": requirements(definition.name) | _files(definition),
        "hints": HINTS,
        "baseCommand": ["eopipe", definition.name],
        "arguments": [word for p in definition.ports for word in _argument(definition, p)],
        "inputs": {_name(p): _input(definition, p) for p in definition.ports}
        | (SETTINGS if definition.name == "train" else {})
        | needs_inputs(definition.name),
        "outputs": {k: v for p in outputs for k, v in _outputs(definition, p).items()}
        | _record(outputs)
        | ({"checkpoints": CHECKPOINTS} if definition.name == STATE[0] else {}),
        "temporaryFailCodes": list(TEMPORARY),
        "permanentFailCodes": sorted({*errors.BY_CODE, errors.EopipeError.code} - {*TEMPORARY, errors.DriftError.code}),
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
    # Engines resolve these names relative to the workflow or tool that they run.
    return {
        "$namespaces": {"cwltool": "http://commonwl.org/cwltool#"},
        "cwltool:overrides": {f"{name}.cwl": {"requirements": requirements} for name in stages},
    }


def requirements(name: str) -> dict[str, Any]:
    """What the tool of a stage requires; memory and time are inputs of it."""
    needs = NEEDS[name]
    cores = {"coresMin": needs.cores, "coresMax": needs.max_cores}
    return {
        "NetworkAccess": {"networkAccess": name in NETWORK},
        "ResourceRequirement": cores | {"ramMin": "$(inputs.mem_mb)", "ramMax": "$(inputs.mem_mb)"},
        "ToolTimeLimit": {"timelimit": "$(inputs.timelimit_s)"},
        "LoadListingRequirement": {"loadListing": "no_listing"},
        # The cache of an engine compares the command, not the program.
        "EnvVarRequirement": {"envDef": {"EOPIPE_VERSION": __version__}},
    }


def needs_inputs(name: str) -> dict[str, Any]:
    """The inputs of a tool for its memory and time."""
    needs = NEEDS[name]
    memory = {"type": "int", "label": "memory", "doc": "memory of the job in MB", "default": needs.memory}
    limit = {"type": "int", "label": "time limit", "doc": "seconds after which the job is ended"}
    return {"mem_mb": memory, "timelimit_s": limit | {"default": needs.limit_s}}


def _files(definition: Stage) -> dict[str, Any]:
    """Files of the working folder: a list of the paths of each port that may have thousands; a state to continue."""
    # With the end of a line this is text: without, engines take it for the files themselves.
    lists = [
        {"entryname": f"{p.name}.list.json", "entry": f"$(inputs.{p.name})\n"} for p in definition.ports if is_listed(p)
    ]
    states = [
        {"entryname": p.name, "entry": f"$(inputs.{p.name})", "writable": True}
        for p in definition.ports
        if _is_state(definition, p)
    ]
    return {"InitialWorkDirRequirement": {"listing": lists + states}} if lists or states else {}


def is_listed(port: Port) -> bool:
    """Whether a command names the paths of a port in a list file: one path for each scene is too much for it."""
    return isinstance(port.mark, Input) and port.is_list and not port.mark.user


def _is_state(definition: Stage, port: Port) -> bool:
    return (definition.name, port.name) == STATE


def _argument(definition: Stage, port: Port) -> list[str]:
    """The words of a command for a port that the input itself does not add."""
    if is_listed(port):
        return [port.flag, f"@{port.name}.list.json"]
    return [port.flag, port.name] if _is_state(definition, port) else []


def _name(port: Port) -> str:
    return f"{port.name}_name" if isinstance(port.mark, Output) else port.name


def cwl_type(port: Port) -> Any:
    """The CWL type of the input for a port."""
    if isinstance(port.mark, Input):
        kind: Any = ["File", "Directory"] if port.mark.mixed else "Directory" if port.mark.folder else "File"
    else:
        # Two enums of two documents are never the same type in CWL, so choices are strings.
        kind = "string" if is_path(port) or port.choices else KINDS[port.base]
    if isinstance(port.mark, Input) and port.mark.nested:
        # Jobs that did not run have none, and outputs for the images of each fold or trial are lists of lists.
        kind = ["null", kind, {"type": "array", "items": ["null", kind]}]
    kind = {"type": "array", "items": kind} if port.is_list else kind
    if port.optional:
        return ["null", *(kind if isinstance(kind, list) else [kind])]
    return kind


def _format(mark: Input | Output) -> dict[str, str]:
    """The format of a file as CWL needs it: an IRI, so without the parameters of a media type."""
    named = mark.format.partition(";")[0]
    return {"format": named if named.startswith("edam:") else f"iana:{named}"} if named else {}


def _input(definition: Stage, port: Port) -> dict[str, Any]:
    value = described(port)
    if _is_state(definition, port):
        return value | {"type": ["null", "Directory"]}
    if port.positional:
        # Behind an option with a list it would be one of its values.
        return value | {"inputBinding": {"position": -1}}
    return value if is_listed(port) else value | {"inputBinding": {"prefix": port.flag}}


def described(port: Port) -> dict[str, Any]:
    """An input without its place in a command: type, label, sentence, format and default."""
    doc = port.mark.doc + (f" ({' or '.join(port.choices)})" if port.choices else "")
    value: dict[str, Any] = {"type": cwl_type(port), "label": port.name.replace("_", " "), "doc": doc}
    if isinstance(port.mark, Input):
        value |= _format(port.mark)
    if isinstance(port.mark, Output) and not port.optional:
        value["default"] = port.mark.name
    elif not port.required and port.default is not None:
        value["default"] = list(port.default) if port.is_list else port.default
    return value


def _outputs(definition: Stage, port: Port) -> dict[str, Any]:
    mark = port.mark
    assert isinstance(mark, Output)
    glob = f"$(inputs.{port.name}_name)"
    # A job that ends before its training has no model.
    is_optional = port.optional or definition.name == STATE[0]
    name = "Directory" if mark.folder else "File"
    kind: dict[str, Any] = {"type": ["null", name] if is_optional else name} | ({} if mark.folder else _format(mark))
    outputs = {port.name: kind | {"label": port.name, "doc": mark.doc, "outputBinding": {"glob": glob}}}
    if mark.each:
        each = {"type": "File[]", "label": f"{port.name}, one by one", "doc": "for a scatter"} | _format(mark)
        outputs[f"{port.name}_each"] = each | {"outputBinding": {"glob": f"{glob}/{mark.each}"}}
    for name in mark.stores:
        each = {"type": "Directory[]", "label": name, "doc": f"stores in {name}/ of {port.name}"}
        outputs[name] = each | {"outputBinding": {"glob": f"{glob}/{name}/*"}}
    return outputs


def _record(outputs: Sequence[Port]) -> dict[str, Any]:
    """The run record, beside the first output that is given: one that has no name matches no file."""
    record = {"type": "File", "format": "iana:application/json", "label": "run record", "doc": "what the job did"}
    optional = [*takewhile(lambda port: port.optional, outputs)]
    globs = [f"$(inputs.{port.name}_name).run.json" for port in outputs[: len(optional) + 1]]
    return {"record": record | {"outputBinding": {"glob": globs if optional else globs[0]}}}


def workflow_document(label: str, doc: str, intents: tuple[str, ...], body: dict[str, Any]) -> dict[str, Any]:
    """A workflow: its head, and its body."""
    return {
        "cwlVersion": "v1.2",
        "class": "Workflow",
        "$namespaces": NAMESPACES,
        "label": label,
        "doc": doc,
        "intent": [f"edam:{intent}" for intent in intents],
        **AUTHORS,
        "requirements": {
            "MultipleInputFeatureRequirement": {},
            "ScatterFeatureRequirement": {},
            "StepInputExpressionRequirement": {},
            "SubworkflowFeatureRequirement": {},
        },
        **body,
    }
