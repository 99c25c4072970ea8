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
    general: dict[str, Any] = {
        "results": (str, Field("results", pattern=r"^[\w./-]+$", description="folder of all results")),
        "state": (
            str,
            Field("state", pattern=r"^[\w./-]+$", description="folder of checkpoints and downloads"),
        ),
        "online_nodes": (
            bool,
            Field(False, description="compute nodes have internet access: submit search and fetch as cluster jobs too"),
        ),
        "setup": (str, Field("", description="shell line before each command, as a site needs it: module load …")),
        "container": (str, Field("", description="container image for --sdm apptainer: a file, or docker://…")),
    }
    return create_model("Config", __config__=STRICT, **general, **sections)


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
    parser.add_argument(
        "config", type=Path, nargs="?", default=Path("config/config.yaml"), help="config file [%(default)s]"
    )
    path = parser.parse_args(argv).config
    load(path)
    print(f"{path} is valid")
    return 0


def check(values: dict[str, Any], name: str = "config") -> dict[str, Any]:
    """Check a config and fill in defaults. Raises UsageError with one sentence for each mistake."""
    try:
        config = model().model_validate(values).model_dump()
    except ValidationError as error:
        raise UsageError(f"{name}: " + "; ".join(_sentence(e) for e in error.errors())) from None
    if errors := urls_with_credentials(config) or conflicts(config):
        raise UsageError(f"{name}: " + "; ".join(errors))
    return config


def urls_with_credentials(config: dict[str, Any]) -> list[str]:
    """A sentence for each URL with a login or token, which would get into logs, run records and crates."""
    from eopipe.fetch.signing import redact_href

    values = [(f"{name}.{key}", v) for name in STAGES for key, value in config[name].items() for v in _strings(value)]
    return [
        f"{setting} has a login or token in its URL; remove it, and set the environment variable EOPIPE_TOKEN_<HOST> "
        "or use ~/.netrc"
        for setting, value in values
        if "://" in value and redact_href(value) != value
    ]


def _strings(value: Any) -> list[str]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [str(entry) for entry in values if isinstance(entry, (str, Path))]


def _sentence(error: Any) -> str:
    keys = [str(key) for key in error["loc"]]
    if error["type"] != "extra_forbidden":
        reason = error["msg"][:1].lower() + error["msg"][1:]
        return f"{'.'.join(keys)} is {redact_for_terminal(repr(error['input']))}: {reason}"
    owner, name = ".".join(keys[:-1]), keys[-1]
    known = list((section(owner) if owner else model()).model_fields)
    similar = get_close_matches(name, known, 1, 0.5)
    hint = f"did you mean {similar[0]}?" if similar else f"it has {', '.join(known)}"
    return f"{owner or 'the config'} has no setting {name}; {hint}"


def conflicts(config: dict[str, Any]) -> list[str]:
    """A sentence for each combination of settings that is wrong whatever the data are."""
    search, tiles, label, split = (config[k] for k in ("search", "preprocess", "label", "split"))
    errors = _search_conflicts(search, tiles, label)
    if (label["asset"] is None) == (label["source"] is None):
        errors.append("label needs exactly one of `source` (a file) and `asset` (of each scene)")
    if split["chip"] % 2 ** config["train"]["depth"]:
        errors.append(f"split.chip {split['chip']} cannot be halved {config['train']['depth']} times (train.depth)")
    colors, classes = config["report"]["colors"], label["classes"]
    if colors and not label["measure"] and len(colors) != len(classes):
        errors.append(f"report.colors has {len(colors)} colours for {len(classes)} classes")
    errors += _composite_conflicts(config["composite"], tiles, label)
    errors += _train_conflicts(config["train"], label, colors)
    return errors + _label_conflicts(label) + _tile_conflicts(search, tiles, split)


def _train_conflicts(train: dict[str, Any], label: dict[str, Any], colors: tuple[str, ...]) -> list[str]:
    from eopipe.training_job import Settings

    task, measure = train["task"], label["measure"]
    errors = Settings.of(train).conflicts()
    if task == "regression" and not measure:
        errors.append("train.task regression needs label.measure, the name of the quantity that the labels hold")
    if measure and task != "regression":
        errors.append(f"label.measure gives continuous labels, but train.task {task} needs classes; use regression")
    if measure and colors:
        errors.append("report.colors are for classes, but label.measure gives continuous labels; remove report.colors")
    return errors


def _composite_conflicts(composite: dict[str, Any], tiles: dict[str, Any], label: dict[str, Any]) -> list[str]:
    method = composite["method"]
    if method == "none":
        return []
    errors = [stack_conflict(composite["period"], composite["stack"], composite["parts"])]
    if label["asset"]:
        errors.append(
            f"composite.method {method} combines scenes, so label.asset {label['asset']} of each scene cannot be used; "
            "set label.source, or composite.method to none"
        )
    missing = [band for band in RANKING_BANDS.get(method, ()) if band not in tiles["bands"]]
    if missing:
        errors.append(f"composite.method {method} needs {', '.join(missing)} in preprocess.bands")
    return [sentence for sentence in errors if sentence]


def _search_conflicts(search: dict[str, Any], tiles: dict[str, Any], label: dict[str, Any]) -> list[str]:
    errors = []
    if (search["catalog"] is None) == (search["url"] is None):
        errors.append("search needs exactly one of `catalog` (a folder) and `url`")
    if search["area"] is not None and search["bbox"]:
        errors.append("search has both `area` and `bbox`; remove one")
    required = [*tiles["bands"], *([] if tiles["mask"] == "none" else [tiles["mask"]])]
    missing = [band for band in required if band not in search["assets"]]
    if missing:
        errors.append(
            f"preprocess needs {', '.join(missing)}, which search.assets does not have; "
            f"it has {', '.join(search['assets'])}"
        )
    if label["asset"] and label["asset"] not in search["assets"]:
        errors.append(f"label.asset {label['asset']} is not in search.assets")
    return errors


def _label_conflicts(label: dict[str, Any]) -> list[str]:
    classes = len(label["classes"])
    errors = option_conflicts(label["measure"], label["resampling"], {k: label[k] for k in ("bins", "codes", "values")})
    if label["measure"]:
        return errors
    if label["bins"] and len(label["bins"]) != classes - 1:
        errors.append(f"label.bins has {len(label['bins'])} edges; {classes} classes need {classes - 1}")
    if label["codes"] and len(label["codes"]) != classes:
        errors.append(f"label.codes has {len(label['codes'])} values for {classes} classes")
    if label["bins"] and label["codes"]:
        errors.append("label has both `bins` and `codes`; remove one")
    if label["values"] and (label["bins"] or label["codes"]):
        errors.append("label has `values` and also `bins` or `codes`; keep one")
    return errors


def _tile_conflicts(search: dict[str, Any], tiles: dict[str, Any], split: dict[str, Any]) -> list[str]:
    errors = []
    if tiles["shard"] % tiles["chunk"]:
        errors.append(f"preprocess.shard {tiles['shard']} is not a multiple of preprocess.chunk {tiles['chunk']}")
    if sum(split["fractions"]) > 1.0001 or len(split["fractions"]) != 3:
        errors.append("split.fractions needs three numbers (train, val, test) whose sum is at most 1")
    if split["method"] == "temporal" and not split["dates"]:
        errors.append("split.method temporal needs split.dates: the first days of val and test, or of test alone")
    if split["method"] == "group" and split["by"] == "region" and not split["regions"]:
        errors.append("split.by region needs split.regions: a file of named polygons")
    bbox, resolution = search["bbox"], search["resolution"]
    if len(bbox) == 4 and resolution:
        # A degree of latitude is 111 km; in a geographic CRS the resolution is in degrees itself.
        height = (bbox[3] - bbox[1]) * (111_000 if resolution > 0.1 else 1) / resolution
        if split["chip"] > height:
            errors.append(f"split.chip {split['chip']} is larger than the area, which is {height:.0f} pixels high")
    return errors
