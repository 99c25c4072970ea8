"""The config file: one section a stage, typed by the stage's own signature."""

from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from eopipe.arguments import Parser
from eopipe.composites.periods import RANKING_BANDS, stack_conflict
from eopipe.contract import STAGES, annotated, stage, summary
from eopipe.errors import UsageError
from eopipe.labels.values import option_conflicts
from eopipe.provenance.redact import redact_for_terminal

STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


@cache
def section(name: str) -> type[BaseModel]:
    """The pydantic model of a stage's section."""
    definition = stage(name)
    fields: dict[str, Any] = {
        port.name: (annotated(port), Field(port.default, description=port.mark.doc)) for port in definition.settings
    }
    return create_model(name, __config__=STRICT, __doc__=definition.summary, **fields)


@cache
def model() -> type[BaseModel]:
    """The pydantic model of the whole config."""
    sections: dict[str, Any] = {
        name: (section(name), Field(default_factory=section(name), description=summary(name))) for name in STAGES
    }
    places: dict[str, Any] = {
        "results": (str, Field("results", pattern=r"^[\w./-]+$", description="folder of everything that is made")),
        "state": (str, Field("state", pattern=r"^[\w./-]+$", description="folder of checkpoints; outlives failures")),
        "online_nodes": (
            bool,
            Field(False, description="compute nodes reach catalogs: search and fetch are jobs of a cluster too"),
        ),
        "setup": (str, Field("", description="shell line before each command, as a site needs it: module load …")),
        "container": (str, Field("", description="image of eopipe for --sdm apptainer: a file, or docker://…")),
    }
    return create_model("Config", __config__=STRICT, **places, **sections)


def load(path: Path) -> dict[str, Any]:
    """Read and check a config file."""
    import yaml

    try:
        return check(yaml.safe_load(path.read_text()) or {}, str(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {str(error).splitlines()[0]}") from error


def check_command(argv: list[str]) -> int:
    """Check a config file before anything runs."""
    parser = Parser(prog="eopipe check", description=check_command.__doc__)
    parser.add_argument("config", type=Path, nargs="?", default=Path("config/config.yaml"))
    path = parser.parse_args(argv).config
    load(path)
    print(f"{path} is valid")
    return 0


def check(given: dict[str, Any], name: str = "config") -> dict[str, Any]:
    """Check a config and fill in defaults; every mistake is listed, each in one sentence."""
    try:
        config = model().model_validate(given).model_dump()
    except ValidationError as error:
        raise UsageError(f"{name}: " + "; ".join(_sentence(e) for e in error.errors())) from None
    wrong = open_logins(config) or conflicts(config)
    if wrong:
        raise UsageError(f"{name}: " + "; ".join(wrong))
    return config


def open_logins(config: dict[str, Any]) -> list[str]:
    """Addresses that hold a login or a token: from the config they would come into logs, records and crates."""
    from eopipe.fetch.signing import redact_href

    values = [(f"{name}.{key}", v) for name in STAGES for key, value in config[name].items() for v in _strings(value)]
    return [
        f"{place} holds a login or a token in its address; take it out, and give it by an environment variable "
        "(EOPIPE_TOKEN_ and the host) or in ~/.netrc"
        for place, value in values
        if "://" in value and redact_href(value) != value
    ]


def _strings(value: Any) -> list[str]:
    many = value if isinstance(value, (list, tuple)) else [value]
    return [str(one) for one in many if isinstance(one, (str, Path))]


def _sentence(error: Any) -> str:
    place = [str(part) for part in error["loc"]]
    if error["type"] != "extra_forbidden":
        reason = error["msg"][:1].lower() + error["msg"][1:]
        return f"{'.'.join(place)} is {redact_for_terminal(repr(error['input']))}: {reason}"
    owner, word = ".".join(place[:-1]), place[-1]
    known = list((section(owner) if owner else model()).model_fields)
    near = get_close_matches(word, known, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"{owner or 'the config'} has no setting {word}; {hint}"


def conflicts(config: dict[str, Any]) -> list[str]:
    """Settings that cannot go together, whatever the data are."""
    search, tiles, label, split = (config[k] for k in ("search", "preprocess", "label", "split"))
    wrong = _search_conflicts(search, tiles, label)
    if (label["asset"] is None) == (label["source"] is None):
        wrong.append("label needs either a source (a file) or an asset of each scene, not both and not none")
    if split["chip"] % 2 ** config["train"]["depth"]:
        wrong.append(f"split.chip {split['chip']} cannot be halved {config['train']['depth']} times (train.depth)")
    colors, classes = config["report"]["colors"], label["classes"]
    if colors and not label["measure"] and len(colors) != len(classes):
        wrong.append(f"report.colors has {len(colors)} colours for {len(classes)} classes")
    wrong += _composite_conflicts(config["composite"], tiles, label)
    wrong += _train_conflicts(config["train"], label, colors)
    return wrong + _label_conflicts(label) + _tile_conflicts(search, tiles, split)


def _train_conflicts(train: dict[str, Any], label: dict[str, Any], colors: tuple[str, ...]) -> list[str]:
    from eopipe.training_job import Settings

    task, measure = train["task"], label["measure"]
    wrong = Settings.of(train).conflicts()
    if task == "regression" and not measure:
        wrong.append("train.task regression needs numbers: give label.measure, the name of what the labels measure")
    if measure and task != "regression":
        wrong.append(f"label.measure keeps numbers, and train.task {task} needs classes; set train.task to regression")
    if measure and colors:
        wrong.append("report.colors are for classes, and label.measure has none; leave them away")
    return wrong


def _composite_conflicts(composite: dict[str, Any], tiles: dict[str, Any], label: dict[str, Any]) -> list[str]:
    method = composite["method"]
    if method == "none":
        return []
    wrong = [stack_conflict(composite["period"], composite["stack"], composite["parts"])]
    if label["asset"]:
        wrong.append(
            f"composite.method {method} mixes scenes, so labels cannot be the asset {label['asset']} of each scene; "
            "give label.source, or composite.method none"
        )
    lacking = [band for band in RANKING_BANDS.get(method, ()) if band not in tiles["bands"]]
    if lacking:
        wrong.append(f"composite.method {method} needs band {', '.join(lacking)} among preprocess.bands")
    return [sentence for sentence in wrong if sentence]


def _search_conflicts(search: dict[str, Any], tiles: dict[str, Any], label: dict[str, Any]) -> list[str]:
    wrong = []
    if (search["catalog"] is None) == (search["url"] is None):
        wrong.append("search needs either a catalog (a folder) or a url, not both and not none")
    if search["area"] is not None and search["bbox"]:
        wrong.append("search has both an area and a bbox; give one")
    wanted = [*tiles["bands"], *([] if tiles["mask"] == "none" else [tiles["mask"]])]
    unknown = [band for band in wanted if band not in search["assets"]]
    if unknown:
        wrong.append(
            f"preprocess asks for {', '.join(unknown)}, which search.assets does not fetch; "
            f"it has {', '.join(search['assets'])}"
        )
    if label["asset"] and label["asset"] not in search["assets"]:
        wrong.append(f"label.asset {label['asset']} is not among search.assets")
    return wrong


def _label_conflicts(label: dict[str, Any]) -> list[str]:
    classes = len(label["classes"])
    wrong = option_conflicts(label["measure"], label["resampling"], {k: label[k] for k in ("bins", "codes", "values")})
    if label["measure"]:
        return wrong
    if label["bins"] and len(label["bins"]) != classes - 1:
        wrong.append(f"label.bins has {len(label['bins'])} edges; {classes} classes need {classes - 1}")
    if label["codes"] and len(label["codes"]) != classes:
        wrong.append(f"label.codes has {len(label['codes'])} numbers for {classes} classes")
    if label["bins"] and label["codes"]:
        wrong.append("label has both bins and codes; give one")
    if label["values"] and (label["bins"] or label["codes"]):
        wrong.append("label has values beside bins or codes; give one")
    return wrong


def _tile_conflicts(search: dict[str, Any], tiles: dict[str, Any], split: dict[str, Any]) -> list[str]:
    wrong = []
    if tiles["shard"] % tiles["chunk"]:
        wrong.append(f"preprocess.shard {tiles['shard']} is not a multiple of preprocess.chunk {tiles['chunk']}")
    if sum(split["fractions"]) > 1.0001 or len(split["fractions"]) != 3:
        wrong.append("split.fractions needs three numbers (train, val, test) that add up to at most 1")
    if split["method"] == "temporal" and not split["dates"]:
        wrong.append("split.method temporal needs split.dates: the first day of val and that of test, in order")
    if split["method"] == "group" and split["by"] == "region" and not split["regions"]:
        wrong.append("split.by region needs split.regions: a file of polygons, each with its name")
    box, step = search["bbox"], search["resolution"]
    if len(box) == 4 and step:
        # A degree of latitude is 111 km; in a geographic CRS the resolution is in degrees itself.
        height = (box[3] - box[1]) * (111_000 if step > 0.1 else 1) / step
        if split["chip"] > height:
            wrong.append(f"split.chip {split['chip']} is larger than the area, which is {height:.0f} pixels high")
    return wrong
