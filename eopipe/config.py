"""The config file: one section a stage, typed by the stage's own signature."""

import re
from collections.abc import Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from eopipe.config_conflicts import conflicts
from eopipe.contract import STAGES, Input, is_option, stage, summary
from eopipe.errors import UsageError, did_you_mean
from eopipe.models.model_folder import MOST_MEMBERS
from eopipe.needs import unmet
from eopipe.ports import annotated
from eopipe.provenance.graph import CrateDescription
from eopipe.provenance.redact import redact_for_terminal
from eopipe.text_files import read_config
from eopipe.trial_settings import Trials

# What makes the stores that `eopipe import` has written.
OF_SCENES = ("search", "fetch", "preprocess", "composite", "label")
# What only the cards of a trained model show.
OF_CARDS = ("use", "limits", "author")
# What makes a model, and measures it in areas apart; labels may test a map of a finished one.
OF_TRAINING = ("chip_set", "import", "folds", "trials", "members", "split", "train", "calibrate", "export")
STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
# What a setting must be, by pydantic's name of the mistake.
RULES = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "write a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "write a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "write true or false"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "write `name: value` lines below it"),
    "string_type": "write text, in quotes where it looks like a number, a date, yes or no",
    "path_type": "write a path",
    "greater_than_equal": "write at least {ge}",
    "greater_than": "write more than {gt}",
    "less_than_equal": "write at most {le}",
    "less_than": "write less than {lt}",
    "multiple_of": "write a multiple of {multiple_of}",
    "literal_error": "write {expected}",
    "too_short": "write at least one entry",
    "too_long": "write at most {max_length} entries",
    "string_too_short": "write some text",
}

# The settings beside the sections of the stages, each with its type.
GENERAL: dict[str, Any] = {
    "results": (str, Field("results", pattern=r"^[\w./-]+$", description="folder of all results")),
    "state": (str, Field("state", pattern=r"^[\w./-]+$", description="folder of checkpoints and downloads")),
    "chip_set": (
        str | None,
        Field(
            None,
            description="folder of a chip set, whose chips replace search, tiles and labels: by `eopipe import`, or by "
            "the run itself, with the section import",
        ),
    ),
    "model": (
        str | None,
        Field(
            None,
            description="folder of a finished model, which maps the scenes without a training; labels test the map",
        ),
    ),
    "calibration": (
        str | None,
        Field(None, description="calibration of that model, as a run has it in calibration.json"),
    ),
    "allow_code": (
        str | None,
        Field(None, description="permission to run the code of that model, if it is a custom one: module:Class"),
    ),
    "folds": (int, Field(0, ge=0, description="folds of a cross-validation beside the model, at least 3; 0: none")),
    "trials": (
        Trials,
        Field(
            default_factory=Trials,
            description="trainings with other settings, of which the one with the best validation score is taken",
        ),
    ),
    "members": (
        Annotated[int, Field(ge=0, le=MOST_MEMBERS)] | Annotated[list[dict[str, Any]], Field(max_length=MOST_MEMBERS)],
        Field(
            0,
            description="trainings with other seeds, the mean of whose maps is the map; or a list with the options of "
            "train of each, such as {architecture: forest}; 0: none",
        ),
    ),
    "map_parts": (
        int,
        Field(1, ge=1, description="parts of each map, which jobs of their own make and another one joins; 1: none"),
    ),
    "with_products": (
        bool,
        Field(False, description="also make what people open of the maps: polygons, QGIS style, areas of zones"),
    ),
    "online_nodes": (
        bool,
        Field(False, description="compute nodes have internet access: submit search and fetch as cluster jobs too"),
    ),
    "max_minutes": (
        int | None,
        Field(None, ge=1, description="maximum that a job requests, also in a retry: the limit of a partition"),
    ),
    "setup": (str, Field("", description="shell line before each command, as a site needs it: module load …")),
    "container": (str, Field("", description="container image for --sdm apptainer: a file, or docker://…")),
}


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
    return create_model("Config", __config__=STRICT, **GENERAL, **sections)


# A path has one of the two slashes left.
URL_AS_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def load(path: Path) -> dict[str, Any]:
    """Read and check a config file."""
    return check(read_config(path), str(path))


def check(values: dict[str, Any], name: str = "config") -> dict[str, Any]:
    """Check a config and fill in defaults. Raises UsageError with one sentence for each mistake."""
    config, mistakes, _ = validate(values)
    if mistakes:
        raise UsageError(f"{name}: {'; '.join(mistakes)}")
    return config


def validate(values: dict[str, Any]) -> tuple[dict[str, Any], list[str], set[str]]:
    """The config with defaults, a sentence for each mistake, and the sections with settings of a wrong type.

    Such a setting has its default. Combinations of settings are checked where all their sections are right.
    """
    # A section whose lines are all comments is empty in YAML.
    values = {k: {} if v is None and k in (*STAGES, "trials") else _dates_as_text(v) for k, v in values.items()}
    unused = _unused_sections(values)
    try:
        return _with_conflicts(model().model_validate(values).model_dump(), unused, set())
    except ValidationError as error:
        errors = error.errors()
    pruned = {key: _with_text_keys(value) for key, value in _with_text_keys(values).items()}
    for row in errors:
        key, *names = map(str, row["loc"])
        content: Any = pruned.get(key)
        # The place of an error in a value of several possible types contains the name of a type.
        is_in_section = bool(names) and isinstance(content, dict) and names[0] in content
        (content if is_in_section else pruned).pop(names[0] if is_in_section else key, None)
    config = model().model_validate(pruned).model_dump()
    return _with_conflicts(config, _sentences(errors), {str(row["loc"][0]) for row in errors})


def _unused_sections(values: dict[str, Any]) -> list[str]:
    """Sentences about settings that would have no effect: beside a chip set, a finished model, or without one."""
    sentences = []
    if values.get("model"):
        report = values.get("report")
        names = [name for name in OF_TRAINING if values.get(name)]
        names += [f"report.{key}" for key in OF_CARDS if isinstance(report, dict) and key in report]
        if names:
            sentences.append(f"the model is finished and maps without a training; remove {', '.join(names)}")
    elif names := [name for name in ("calibration", "allow_code") if values.get(name)]:
        sentences.append(f"{' and '.join(names)} belong to a finished model; set model, the folder of one")
    if names := [name for name in OF_SCENES if values.get(name)] if values.get("chip_set") else []:
        sentences.append(
            f"the tiles and labels of chip_set are used as they are; remove the sections {', '.join(names)}"
        )
    if values.get("import") and not values.get("chip_set"):
        sentences.append("the section import packs chips into a chip set; set chip_set, the folder to write")
    if values.get("chip_set") and values.get("with_products"):
        sentences.append("with_products is for maps of scenes, and chips of chip_set have no common grid; remove it")
    return sentences


def _with_text_keys(value: Any) -> Any:
    """A mapping without the keys that are not text, as null and numbers in YAML."""
    return {key: entry for key, entry in value.items() if isinstance(key, str)} if isinstance(value, dict) else value


def _dates_as_text(value: Any) -> Any:
    """The same with dates as text: YAML reads a date without quotes as one."""
    if isinstance(value, dict):
        return {key: _dates_as_text(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_dates_as_text(entry) for entry in value]
    return value.isoformat() if isinstance(value, date) else value


def _with_conflicts(
    config: dict[str, Any], mistakes: list[str], wrong_sections: set[str]
) -> tuple[dict[str, Any], list[str], set[str]]:
    sentences = [
        *mistakes,
        *_options_as_values(config),
        *urls_with_credentials(config),
        *urls_as_paths(config),
        *conflicts(config, wrong_sections),
    ]
    # Needs are checked once settings fit together.
    sentences = sentences or unmet(config)[0]
    for name in ("chip_set", "model", "calibration"):
        config[name] = config[name] and str(Path(config[name]))
    # The grid follows the pixels of the bands, not of masks and labels.
    config["search"]["grid_assets"] = config["search"]["grid_assets"] or config["preprocess"]["bands"]
    _share_statements(config)
    # The user named the host of the catalog, so its items may name it too.
    config["fetch"]["private_hosts"] = (*config["fetch"]["private_hosts"], *_catalog_host(config["search"]["url"]))
    for name in (name for name in STAGES if name not in wrong_sections):
        try:
            config[name] = stage(name).with_derived(config[name])
        except UsageError as error:
            sentences.append(str(error))
    if config["model"] and config["allow_code"]:
        # The permission of a training is its own setting. The files come from the model folder, none of this one.
        config["train"]["architecture"] = config["allow_code"]
    return config, sentences, wrong_sections


def _share_statements(config: dict[str, Any]) -> None:
    """Give the cards the authors of the crate, where they have none."""
    crate = config["crate"]
    people = CrateDescription("", "", "", crate["author"], coauthors=crate["coauthors"]).people
    config["report"]["author"] = config["report"]["author"] or ", ".join(people)


def _catalog_host(url: str | None) -> tuple[str, ...]:
    try:
        host = urlsplit(url or "").hostname
    except ValueError:
        host = None
    return (host,) if host else ()


def _options_as_values(config: dict[str, Any]) -> list[str]:
    """A sentence for each text that a command line would take for an option."""
    general = ("results", "state", "chip_set", "model", "calibration", "allow_code")
    settings = {key: config[key] for key in general if config[key]}
    settings |= {f"{name}.{key}": value for name in STAGES for key, value in config[name].items()}
    values = [(setting, value) for setting, entry in settings.items() for value in _strings(entry)]
    return [f"{setting} is {value}: it must not begin with -" for setting, value in values if is_option(value)]


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


def urls_as_paths(config: dict[str, Any]) -> list[str]:
    """A sentence for each setting that must be a path and is a URL."""
    settings = ((name, port.name) for name in STAGES for port in stage(name).of(Input) if port.name in config[name])
    return [
        f"{name}.{key} is {redact_for_terminal(value)}: only files and folders of a file system can be read here; "
        + ("set search.url for a catalog on the web, or download it" if key == "catalog" else "download it first")
        for name, key in settings
        for value in _strings(config[name][key])
        if URL_AS_PATH.match(value)
    ]


def _strings(value: Any) -> list[str]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [str(entry) for entry in values if isinstance(entry, (str, Path))]


def _sentences(errors: Sequence[Any]) -> list[str]:
    """One sentence for each wrong setting, or entry of a list."""
    rows: dict[tuple[Any, ...], list[Any]] = {}
    for error in errors:
        rows.setdefault(error["loc"][:2], []).append(error)
    sentences = []
    for setting, of_setting in rows.items():
        if percent := _in_percent(setting, of_setting):
            sentences.append(percent)
            continue
        # pydantic adds that a list with wrong entries is too short.
        entries = [error for error in of_setting if error["type"] != "too_short"]
        sentences += [_sentence(error) for error in entries or of_setting]
    return list(dict.fromkeys(sentences))


def _in_percent(setting: tuple[Any, ...], errors: list[Any]) -> str:
    """The sentence about fractions that are written in percent; empty for another mistake."""
    inputs = [error["input"] for error in errors if error["type"] == "less_than_equal"]
    values = [value for value in inputs if isinstance(value, int | float)]
    if setting != ("split", "fractions") or not any(value > 1 for value in values):
        return ""
    written = ", ".join(f"{value:g}" for value in values)
    return f"split.fractions has {written}: write fractions of 1, such as [0.7, 0.15, 0.15], not percent"


def _sentence(error: Any) -> str:
    keys, written = [str(key) for key in error["loc"]], redact_for_terminal(repr(error["input"]))
    if keys[0] == "members" and error["input"] is not None:
        place = f"members[{keys[2]}]" if keys[2:] else "members"
        return f"{place} is {written}: write their number, or the options of each as [{{seed: 1}}, {{seed: 2}}]"
    if keys[:2] == ["trials", "space"] and keys[2:]:
        return f"trials.space.{keys[2]} is {written}: write a list of choices, or a range as {{low: 1, high: 10}}"
    if error["type"] != "extra_forbidden":
        if error["input"] is None:
            return f"{'.'.join(keys)} has no value; write one, or remove the line"
        return f"{'.'.join(keys)} is {written}: {_rule(error)}"
    owner, name = ".".join(keys[:-1]), keys[-1]
    ports = stage(owner).ports if owner in STAGES else ()
    for port in ports:
        if port.name == name and port.section:
            return f"{owner} has no setting {name} of its own; set {port.section}.{port.setting}, which is for all"
    sections: dict[str, type[BaseModel]] = {"": model(), "trials": Trials}
    known = list((sections[owner] if owner in sections else section(owner)).model_fields)
    # Words that a setting is described by, as early_stopping for patience.
    described = [port.name for port in ports if name.replace("_", " ").lower() in port.mark.doc.lower()]
    otherwise = f"did you mean {described[0]}?" if described else f"it has {', '.join(known) or 'none'}"
    hint = did_you_mean(name, known, otherwise, 0.5)
    return f"{owner or 'the config'} has no setting {name}; {hint}"


def _rule(error: Any) -> str:
    """What a setting must be, in words that need no Python."""
    kind, name = error["type"], error["loc"][-1]
    if kind == "string_pattern_mismatch" and name in ("results", "state"):
        if "://" in error["input"]:
            return "results are written to a file system only; write a folder, and copy it to the object store later"
        return "write the path of a folder with letters, digits and . _ - / only, without blanks"
    if kind == "tuple_type":
        return f"write a list, {name}: [{error['input']}, …]"
    if kind == "string_pattern_mismatch":
        owner, field = (*error["loc"], "", "")[:2]
        fields = section(owner).model_fields if owner in STAGES else model().model_fields
        return f"write {fields[field if owner in STAGES else owner].description}"
    rule = RULES.get(kind)
    return rule.format(**error.get("ctx", {})) if rule else error["msg"][:1].lower() + error["msg"][1:]
