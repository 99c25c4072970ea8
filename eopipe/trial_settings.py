"""The settings of several trainings of a run: of trials, points of a space of options of `train`, or of members.

They follow from the config alone, so that every engine has the same ones. A trial has a name by its settings: another
trial more leaves those that are trained already as they are. A member of an ensemble is a training with another seed,
or with settings of its own.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import product
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from eopipe.arrays import Float64Array
from eopipe.contract import Port, stage, to_args
from eopipe.errors import UsageError, did_you_mean, some_of
from eopipe.ports import adapter

Settings = dict[str, Any]
# What makes scores of trials incomparable, or shapes their jobs, which is the same for all.
FIXED = ("task", "min_share", "processes", "nodes", "threads", "shards", "strategy", "deterministic")
# The places that each training maps: trials are compared in those of validation, members where their mean is scored.
PLACES = {"trial": "val", "member": "test"}
MAX_TRIALS = 1000
# As many as the workflow of CWL has steps for.
MAX_RUNGS = 3
# Points of a sequence that are looked at for each new one, where the space has few different ones.
TRIES = 100
# The first points of a Halton sequence of several dimensions form lines.
FIRST_POINT = 20
DIGITS = 6


class Range(BaseModel, extra="forbid"):
    """Numbers from `low` to `high`: all, or in steps; of a logarithmic one each factor is equally likely."""

    low: float
    high: float
    step: float | None = Field(default=None, gt=0)
    log: bool = False
    when: dict[str, Any] = {}


class Choices(BaseModel, extra="forbid"):
    """Values to choose from, which only apply `when` other settings have the given values."""

    choices: list[Any] = Field(min_length=1)
    when: dict[str, Any] = {}


class Trials(BaseModel, extra="forbid"):
    """The section `trials` of a config."""

    space: dict[str, list[Any] | dict[str, Any]] = Field(
        default={},
        description=(
            "options of train with the values to try: a list of choices, or a range as {low, high, step, log}; with "
            "`when: {option: value}` only where another option has that value"
        ),
    )
    count: int | None = Field(
        default=None, ge=2, le=MAX_TRIALS, description="number of trials; for sampler grid all combinations"
    )
    sampler: Literal["grid", "random", "halton"] = Field(
        default="grid",
        description="all combinations, random points of the space, or points that fill it evenly (Halton sequence)",
    )
    rungs: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field(
        default=(),
        max_length=MAX_RUNGS,
        description="shares of the steps after which trials are compared, and only the best continue, as [0.25, 0.5]",
    )
    keep: float = Field(default=0.5, gt=0, lt=1, description="share of the trials that continue behind each rung")
    seed: int = Field(default=0, ge=0, description="seed of random points, and where the Halton sequence starts")


@dataclass(frozen=True)
class Dimension:
    """An option of the space: its port, its values in order, or a range without steps, and what it depends on."""

    port: Port
    values: tuple[Any, ...]
    range: Range | None
    when: Mapping[str, Any] = field(default_factory=dict)

    def value_at(self, share: float) -> Any:
        """The value at a share of the dimension, 0 <= share < 1."""
        if self.range is None:
            return self.values[int(share * len(self.values))]
        low, high, is_whole = self.range.low, self.range.high, self.port.base is int
        # Each whole number has a share of its own.
        ends = (low - 0.5, high + 0.5) if is_whole else (low, high)
        if self.range.log:
            start, stop = (math.log(end) for end in ends)
            value = math.exp(start + share * (stop - start))
        else:
            value = ends[0] + share * (ends[1] - ends[0])
        value = min(max(value, low), high)
        # The last digits of a logarithm differ between machines.
        return round(value) if is_whole else float(f"{value:.{DIGITS}g}")

    def applies(self, settings: Settings, train: Settings) -> bool:
        """Whether its condition holds beside the settings of earlier dimensions."""
        values = train | settings
        return all(values[name] in (value if isinstance(value, list) else [value]) for name, value in self.when.items())


def trial_settings(config: Mapping[str, Any]) -> dict[str, Settings]:
    """The settings of each trial by its name, in the order of the sampler; none without a space.

    Raises UsageError for a space that there cannot be, and for one with fewer points than trials are wanted.
    """
    if not config["trials"]["space"]:
        return {}
    return _settings_of(json.dumps([config["trials"], config["train"]], default=str))


@lru_cache(maxsize=4)
def _settings_of(sections: str) -> dict[str, Settings]:
    """The same from both sections as JSON: every job of a trial asks for them."""
    of_trials, train = json.loads(sections)
    trials = Trials(**of_trials)
    dimensions = [dimension_of(name, values) for name, values in trials.space.items()]
    _check_conditions(dimensions)
    points = _grid(dimensions) if trials.sampler == "grid" else _sequence(trials, dimensions)
    settings: dict[str, Settings] = {}
    for point in points:
        of_point = _settings_at(dimensions, point, train)
        settings.setdefault(name_of(of_point), of_point)
        if trials.sampler != "grid" and len(settings) == trials.count:
            break
    _check_count(trials, len(settings))
    if list(trials.rungs) != sorted(set(trials.rungs)):
        raise UsageError(
            f"trials.rungs has {', '.join(map(str, trials.rungs))}; write shares that rise, as [0.25, 0.5]"
        )
    return settings


def name_of(settings: Settings) -> str:
    """The name of a trial: eight digits of its settings' digest.

    >>> name_of({"width": 32, "seed": 1})
    '3c200be2'
    """
    return sha256(settings_text(settings).encode()).hexdigest()[:8]


def settings_text(settings: Settings) -> str:
    """Settings as JSON, for `eopipe train --settings`."""
    return json.dumps(settings, sort_keys=True)


def kind_of_trainings(config: Mapping[str, Any]) -> Literal["", "trial", "member"]:
    """What the trainings of a run are: trials, members of an ensemble, or no text for a single one."""
    return "trial" if config["trials"]["space"] else "member" if member_settings(config["members"], 0) else ""


def counts_of_rungs(config: Mapping[str, Any]) -> list[int]:
    """How many trials continue behind each rung (successive halving, Jamieson and Talwalkar 2016, AISTATS 51:240)."""
    trials, counts = config["trials"], [len(trial_settings(config))]
    for _ in trials["rungs"]:
        # 25 * 0.28 is 7.000000000000001.
        counts.append(max(1, math.ceil(round(counts[-1] * trials["keep"], 9))))
    return counts[1:]


def training_settings(config: Mapping[str, Any]) -> dict[str, Settings]:
    """The settings of each of several trainings by its name: of trials, or of members by their numbers from 0."""
    if kind_of_trainings(config) == "member":
        return member_settings(config["members"], config["train"]["seed"])
    return trial_settings(config)


def member_settings(members: int | Sequence[Settings], first_seed: int) -> dict[str, Settings]:
    """The settings of each member by its number from 0, each with a seed of its own; none for a single training.

    Raises UsageError for a setting that there is not, that is the same for all, or has another type.
    """
    if members in (0, 1):
        return {}
    trainings = [{}] * members if isinstance(members, int) else members
    if len(trainings) < 2:
        raise UsageError("members lists fewer than two trainings; write the options of each, or their number")
    settings = {}
    for number, options in enumerate(trainings):
        place = f"members[{number}]"
        checked = {name: _checked(f"{place}.{name}", _port(place, name), value) for name, value in options.items()}
        # A member is one model.
        settings[str(number)] = {"seed": first_seed + number, **checked, "averaged_with": ["none"]} | checked
    return settings


def configs_of_trainings(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The config of each training of a run by its name; a single training's by the empty text."""
    trainings = training_settings(config)
    return {name: config_of_training(config, settings) for name, settings in trainings.items()} or {"": dict(config)}


def config_of_training(config: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """A config with one of several trainings. Raises UsageError for missing files of its model."""
    return {**config, "train": stage("train").with_derived(config["train"] | as_options(settings))}


def as_options(settings: Settings) -> Settings:
    """Settings as a config has options: lists as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


def describe_trainings(config: Mapping[str, Any]) -> list[str]:
    """A line about the several trainings of a run for `eopipe plan`; none for a single one."""
    if kind_of_trainings(config) == "member":
        members = training_settings(config).values()
        seeds = [settings["seed"] for settings in members]
        text = "; ".join(format_settings(settings) for settings in members)
        text = f"with the seeds {seeds[0]} to {seeds[-1]}" if isinstance(config["members"], int) else f"with {text}"
        return [f"members: {len(seeds)} trainings {text}, whose mean is the model"]
    if not (count := len(trial_settings(config))):
        return []
    space = ", ".join(config["trials"]["space"])
    line = f"trials: {count} trainings ({space}), of which the best on the validation places is the model"
    rungs = zip(config["trials"]["rungs"], counts_of_rungs(config), strict=True)
    return [line + "".join(f"; {most} continue behind {100 * share:g} % of the steps" for share, most in rungs)]


def format_settings(settings: Settings) -> str:
    """Settings for people: `width 32, seed 1`."""
    texts = {name: json.dumps(value) if isinstance(value, list) else value for name, value in settings.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items())


def dimension_of(name: str, values: Sequence[Any] | Mapping[str, Any]) -> Dimension:
    """An option of the space by its name. Raises UsageError for another name, and for values that it does not take."""
    place, port = f"trials.space.{name}", _port("trials.space", name)
    try:
        if not isinstance(values, Mapping):
            chosen: Range | Choices = Choices(choices=[*values])
        else:
            chosen = (Choices if "choices" in values else Range)(**values)
    except ValidationError as error:
        row = error.errors()[0]
        keys, reason = "".join(f".{key}" for key in row["loc"]), row["msg"][:1].lower() + row["msg"][1:]
        raise UsageError(
            f"{place}{keys}: {reason}; write a list of choices, or low and high, with step, log and when where needed"
        ) from error
    if isinstance(chosen, Choices):
        return Dimension(port, tuple(_checked(place, port, value) for value in chosen.choices), None, chosen.when)
    if port.base not in (int, float) or port.is_list:
        raise UsageError(f"{place} is a range, but train.{name} is not a number; write a list of choices")
    if not chosen.low < chosen.high:
        raise UsageError(f"{place} goes from {chosen.low:g} to {chosen.high:g}; low must be less than high")
    if chosen.log and (chosen.step or chosen.low <= 0):
        raise UsageError(f"{place} is a logarithmic range; it needs a low above 0 and has steps by factors, so no step")
    for end in (chosen.low, chosen.high):
        _checked(place, port, int(end) if port.base is int and end.is_integer() else end)
    return Dimension(port, _steps(place, port, chosen), None if chosen.step else chosen, chosen.when)


def _port(place: str, name: str) -> Port:
    ports = {port.name: port for port in stage("train").options}
    if name in FIXED:
        raise UsageError(f"{place} has {name}, which is the same for all trainings; set train.{name}")
    if name not in ports:
        possible = [option for option in ports if option not in FIXED]
        hint = did_you_mean(name, possible, f"it has {some_of(possible, 40)}")
        raise UsageError(f"{place} has {name}, which is not an option of train; {hint}")
    return ports[name]


def _checked(place: str, port: Port, value: Any) -> Any:
    """A value of an option, as JSON has it."""
    try:
        checked = adapter(port).validate_python(value)
    except ValidationError as error:
        raise UsageError(f"{place} has {value!r}: {error.errors()[0]['msg']}") from error
    to_args(port, checked)
    return list(checked) if isinstance(checked, tuple) else checked


def _steps(place: str, port: Port, chosen: Range) -> tuple[Any, ...]:
    """The numbers of a range in steps; none of one without."""
    if not chosen.step:
        return ()
    count = math.floor((chosen.high - chosen.low) / chosen.step * (1 + 1e-12)) + 1
    if count > MAX_TRIALS:
        raise UsageError(f"{place} has {count} steps, and a run has at most {MAX_TRIALS} trials; choose a larger step")
    numbers = [float(f"{chosen.low + number * chosen.step:.{DIGITS}g}") for number in range(count)]
    return tuple(_checked(place, port, int(n) if port.base is int and n.is_integer() else n) for n in numbers)


def _check_conditions(dimensions: Sequence[Dimension]) -> None:
    """Raise UsageError for a condition on what is not an option, or comes later in the space."""
    earlier: set[str] = set()
    space = {dimension.port.name for dimension in dimensions}
    options = {port.name for port in stage("train").options}
    for dimension in dimensions:
        for name in dimension.when:
            if name not in options or (name in space and name not in earlier):
                reason = "comes after it" if name in space else "is not an option of train"
                raise UsageError(f"trials.space.{dimension.port.name} applies when {name} has a value, which {reason}")
        earlier.add(dimension.port.name)


def _grid(dimensions: Sequence[Dimension]) -> Iterator[tuple[Any, ...]]:
    """All combinations of values, values of the last dimension one after the other."""
    if endless := [dimension.port.name for dimension in dimensions if dimension.range]:
        raise UsageError(
            f"trials.space.{endless[0]} is a range without step, and sampler grid tries every value; give it a step or "
            "choices, or set trials.sampler to halton or random"
        )
    if (count := math.prod(len(dimension.values) for dimension in dimensions)) > MAX_TRIALS:
        raise UsageError(
            f"trials.space has {count} combinations, and a run has at most {MAX_TRIALS} trials; set trials.sampler to "
            "halton or random, and trials.count"
        )
    return product(*(dimension.values for dimension in dimensions))


def _sequence(trials: Trials, dimensions: Sequence[Dimension]) -> Iterator[tuple[Any, ...]]:
    """The values at random points of the space, or at the points of the Halton sequence.

    Halton 1960, Numerische Mathematik 2:84-90, not scrambled, so that every version of SciPy has the same points.
    """
    if trials.count is None:
        raise UsageError(f"trials.sampler {trials.sampler} needs trials.count, the number of trials")
    shape = trials.count * TRIES, len(dimensions)
    if trials.sampler == "random":
        points: Float64Array = np.random.Generator(np.random.Philox(trials.seed)).random(shape)
    else:
        from scipy.stats.qmc import Halton

        sequence = Halton(shape[1], scramble=False)
        sequence.fast_forward(FIRST_POINT + trials.seed * MAX_TRIALS)
        points = sequence.random(shape[0])
    for point in points:
        yield tuple(dimension.value_at(float(share)) for dimension, share in zip(dimensions, point, strict=True))


def _settings_at(dimensions: Sequence[Dimension], point: Sequence[Any], train: Settings) -> Settings:
    """The settings that apply, of a value for each dimension."""
    settings: Settings = {}
    for dimension, value in zip(dimensions, point, strict=True):
        if dimension.applies(settings, train):
            settings[dimension.port.name] = value
    return settings


def _check_count(trials: Trials, count: int) -> None:
    """Raise UsageError where there are not the trials that are wanted."""
    if trials.sampler == "grid" and trials.count not in (None, count):
        raise UsageError(f"trials.space has {count} combinations, not trials.count {trials.count}; remove that")
    if count < (trials.count or 2):
        raise UsageError(
            f"trials.space has only {count} different settings for {trials.count or 2} trials; add values, or set "
            "trials.sampler to grid without trials.count"
        )
