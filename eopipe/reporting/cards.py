"""Model card and data card, for readers without the run: as Markdown for Hugging Face, and in the page.

Mitchell et al. 2019 (doi:10.1145/3287560.3287596); Gebru et al. 2021 (doi:10.1145/3458723).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from eopipe import __version__
from eopipe.reporting import data_tables
from eopipe.reporting import scores as score_tables
from eopipe.reporting.data_tables import TextRow
from eopipe.reporting.run_data import RunData
from eopipe.reporting.scores import TextTable
from eopipe.reporting.task_parts import estimated_areas
from eopipe.reporting.verdict import seeds_text, verdict, weak_classes
from eopipe.reporting.wording import (
    DASH,
    baseline_text,
    calibration_text,
    describe_test,
    format_count,
    format_length,
    format_percent,
    format_setting,
    format_value,
    join_words,
    scored_size,
    split_warnings,
    unused_data,
)
from eopipe.tasks import TASKS
from eopipe.text_table import escape_markdown

UNSTATED = "not stated (set {name} in the config)"
# The licences that Hugging Face lists; any other one is given by its name.
HUB_LICENCES = ("apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc0-1.0", "gpl-3.0", "bsd-3-clause")
HUB_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
# Scores of a class with less than this share of the test pixels are uncertain.
RARE_SHARE = 0.01
ENERGY = (
    "Not measured. The run records and the crate hold the processor time of every job; energy is not estimated from it."
)
COMMAND = "eopipe predict --model model --tiles TILES.zarr --classes classes.tif --probabilities probabilities.tif"
PROCESSING = (
    "Each scene was warped onto one grid and stored as integers with scale and offset; pixels that its mask marks as "
    "cloud, shadow or fill are not used. Labels were rasterised or warped onto the same grid. Chips are windows of "
    "both, assigned to training, validation or test."
)


@dataclass(frozen=True)
class CardSection:
    """A section of a card: paragraphs, a list, tables, a command."""

    title: str
    text: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    tables: tuple[TextTable, ...] = ()
    command: str = ""


@dataclass(frozen=True)
class Card:
    """A card, with the front matter that Hugging Face reads."""

    title: str
    kind: str
    front_matter: dict[str, Any]
    sections: tuple[CardSection, ...]


def markdown(card: Card) -> str:
    """The card as Markdown with YAML front matter; text from outside cannot become markup."""
    front_matter = yaml.safe_dump(card.front_matter, sort_keys=False, allow_unicode=True, width=100)
    lines = ["---", *front_matter.splitlines(), "---", "", f"# {escape_markdown(card.title)}", "", card.kind, ""]
    for section in card.sections:
        lines += [f"## {section.title}", ""]
        lines += [line for text in section.text for line in (escape_markdown(text), "")]
        lines += [*(f"- {escape_markdown(point)}" for point in section.points), *[""] * bool(section.points)]
        lines += [line for table in section.tables if table.rows for line in _markdown_table(table)]
        lines += ["```console", section.command, "```", ""] if section.command else []
    return "\n".join(lines)


def _markdown_table(table: TextTable) -> list[str]:
    head = [f"*{escape_markdown(table.caption)}*", "", _markdown_row(table.heads), "|" + "---|" * len(table.heads)]
    return [*head, *map(_markdown_row, table.rows), ""]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escape_markdown(cell) for cell in cells) + " |"


def _licence_text(run: RunData, product: str) -> Iterator[str]:
    """The licence of a product, and the licences of the scenes and labels that it was made from."""
    yield f"Licence of the {product}: {run.statements.license or UNSTATED.format(name='crate.license')}."
    scenes = "; ".join(licence.text for licence in data_tables.licences(run.items)) or "not named by their items"
    data = "Chips and labels keep" if run.places else f"Licence of the scenes: {scenes}. Labels keep"
    yield f"{data} that of their source."


def _citation_text(run: RunData) -> Iterator[str]:
    """How to cite the run and its data."""
    yield run.citation
    yield "If the crate of the run is published, cite that: it holds the full provenance."
    for citation in data_tables.citations(run.items):
        yield f"Data: {citation.text} {citation.address}".strip()
    lines = [*data_tables.credit_lines(run.items), *filter(None, [run.statements.attribution])]
    yield from ([f"Credits: {'; '.join(dict.fromkeys(lines))}."] if lines else [])


def _hub_licence(name: str) -> dict[str, str]:
    """A licence in the front matter: an id of the hub's list, or `other` with name and link."""
    if not name:
        return {"license": "unknown"}
    if name.lower() in HUB_LICENCES:
        return {"license": name.lower()}
    link = name if "://" in name else f"https://spdx.org/licenses/{name}"
    return {"license": "other", "license_name": name.rstrip("/").rpartition("/")[2].lower(), "license_link": link}


def model_card(run: RunData) -> Card:
    """The card of a run's model."""
    statements = run.statements
    use = f"Use: {statements.use.rstrip('.') or UNSTATED.format(name='report.use')}."
    sections = (
        CardSection("Model", tables=(TextTable("Properties", ("Property", "Value"), _model_rows(run)),)),
        CardSection("Intended use", text=(use, _scope_text(run))),
        CardSection("Data and splits", text=tuple(_data_text(run))),
        _scores_section(run),
        *_area_sections(run),
        CardSection("Limits", points=tuple(_model_limits(run))),
        CardSection("Energy", text=(ENERGY,)),
        CardSection("Licence", text=tuple(_licence_text(run, "model"))),
        CardSection("How to cite", text=tuple(_citation_text(run))),
        CardSection("How to use", command=COMMAND),
    )
    kind = "Model card, written by eopipe from the run that trained the model."
    return Card(run.title, kind, _model_front_matter(run), sections)


def _area_sections(run: RunData) -> Iterator[CardSection]:
    """The areas that were estimated from a labelled sample."""
    if run.estimated:
        sentences, tables, sample, notes = estimated_areas(run.estimated)
        yield CardSection("Areas", text=(*sentences, *notes), tables=(*tables, *sample))


def _model_rows(run: RunData) -> list[TextRow]:
    model = run.model
    return [
        ("task", run.metrics.task),
        ("output", format_setting(run.classes)),
        ("architecture", data_tables.architecture_text(model)),
        ("parameters", format_count(model["parameters"])),
        ("bands, by name", format_setting(model["bands"])),
        ("chip", f"{model['chip']} pixels"),
        *([("length of the training", str(length))] if (length := run.training_length) else []),
        ("weights (sha256)", run.digests[0][1]),
        ("software", f"eopipe {__version__}"),
    ]


def _scope_text(run: RunData) -> str:
    classes, bands = join_words(list(run.classes)), join_words(list(run.model["bands"]))
    return (
        f"The model maps {classes} from the bands {bands} of {run.collections} at a pixel size of "
        f"{format_length(run.pixel[0])}. Other sensors, bands, pixel sizes, seasons and regions were "
        "not tested."
    )


def _data_text(run: RunData) -> Iterator[str]:
    samples = run.split.samples
    yield f"{run.images} of {run.collections}, {run.period}: {run.extent}."
    chips = join_words([f"{format_count(len(samples[name]))} {name}" for name in ("train", "val", "test")])
    gap = data_tables.gap_text(run.split, run.pairs)
    yield f"Chips: {chips}; split method {run.split.plan.method}. {gap} Details are in the data card."
    yield from unused_data(run.split)


def _model_front_matter(run: RunData) -> dict[str, Any]:
    task = TASKS[run.metrics.task].hub
    metrics = [
        {"type": score.hub, "value": value, "name": score.title}
        for score in TASKS[run.metrics.task].scores
        if score.hub and (value := run.metrics.model.score(score.key)) is not None
    ]
    dataset = {"type": "eopipe", "name": f"test areas of {run.collections}, {run.period}"}
    front_matter: dict[str, Any] = _hub_licence(run.statements.license) | {"library_name": "eopipe"}
    front_matter |= {"pipeline_tag": task} if task else {}
    front_matter |= {"tags": ["earth-observation", "remote-sensing", "safetensors", "onnx"]}
    if metrics:
        kind = {"type": task or "image-regression", "name": run.metrics.task}
        result = {"task": kind, "dataset": dataset, "metrics": metrics}
        front_matter |= {"metrics": [metric["type"] for metric in metrics]}
        front_matter |= {"model-index": [{"name": run.title, "results": [result]}]}
    return front_matter


def _model_limits(run: RunData) -> Iterator[str]:
    """What the authors state, and what follows from how the run was tested."""
    yield from run.statements.limits
    if run.places:
        yield f"Tested on chips of this set, of {run.period}; other places, sources, years and seasons were not tested."
    else:
        sizes = [(cell.shape[1] * run.pixel[0], cell.shape[0] * run.pixel[1]) for cell in run.frame.cells]
        areas = join_words([f"{format_length(width)} by {format_length(height)}" for width, height in sizes])
        count = "one area" if len(sizes) == 1 else f"{len(sizes)} areas"
        yield f"Tested in {count} of {areas}; other areas were not tested."
        yield f"Scenes of {run.period} only; other years and seasons were not tested."
    yield "The scores compare with labels, whose own errors are not known."
    yield from _interval_limits(run)
    if run.split.audit.gap_pixels.get("train-test") == 0:
        yield "Training and test chips touch, so the scores may be slightly too high."
    for finding in run.split.audit.allowed:
        yield f"The audit of the splits found {finding.kind} {finding.count} times; allowed: {finding.reason}."
    yield from split_warnings(run.split)
    yield from run.training_limits
    yield from weak_classes(run.metrics)
    per_class = run.metrics.model.per_class
    total = sum(scores.support for scores in per_class.values())
    for name, scores in per_class.items():
        if scores.support < RARE_SHARE * total:
            number = f"{format_count(scores.support)} test {run.metrics.sample}s"
            yield f"Class {name} has only {number}, so its scores are uncertain."


def _interval_limits(run: RunData) -> Iterator[str]:
    """What the intervals allow for, what they do not, and which scores have none."""
    intervals = run.metrics.intervals
    if distance := intervals.range:
        metres = format_length(distance * run.pixel[0])
        yield f"Errors are correlated over about {distance:.3g} pixels ({metres}), as measured in the test areas."
    if not any(intervals.model.values()):
        yield score_tables.no_interval_text(intervals)
        return
    yield seeds_text(run.metrics)
    missing = intervals.missing
    for reason in dict.fromkeys(missing.values()):
        keys = [key for key, value in missing.items() if value == reason and ":" not in key]
        if keys:
            names = [name for key, name in score_tables.measures_of(run.metrics.task) if key in keys]
            yield f"{join_words(names)} without an interval: {reason}."


def _scores_section(run: RunData) -> CardSection:
    """Verdict, and scores of the map, of each class, each quarter and each scene."""
    intervals = run.metrics.intervals
    text = [
        verdict(run.metrics).headline,
        f"Scores of the published map on {scored_size(run.metrics)}. {describe_test(run.split)}",
    ]
    if any(intervals.model.values()):
        text.append(f"Confidence intervals of {format_percent(intervals.level)}: {intervals.method}.")
    text += filter(None, [baseline_text(run.metrics), calibration_text(run.metrics)])
    methods = ("Method", *(name for _, name in score_tables.measures_of(run.metrics.task)))
    classes = score_tables.class_heads(run.metrics), score_tables.text_rows(score_tables.class_rows(run.metrics))
    tables = [
        TextTable("Scores", methods, score_tables.text_rows(score_tables.method_rows(run.metrics))),
        TextTable("Scores of each class, with intervals", *classes),
        _region_table(run),
        TextTable("Scores of each member", *score_tables.member_score_rows(run.metrics)),
        TextTable("Cross-validation: scores of each fold", *score_tables.fold_score_rows(run.folds, run.metrics)),
        TextTable("Scores of each test scene", *score_tables.scene_score_rows(run.metrics)),
    ]
    if board := run.leaderboard:
        text += board.sentences
        tables.append(TextTable("Trials: scores in the validation places", board.heads, board.rows))
    return CardSection("Scores", text=tuple(text), tables=tuple(tables))


def _region_table(run: RunData) -> TextTable:
    measures, rows = score_tables.measures_of(run.metrics.task)[:2], list[TextRow]()
    for region in run.metrics.regions:
        intervals = [region.intervals.get(key) for key, _ in measures]
        ends = [f"{low_high[0]:.4g} to {low_high[1]:.4g}" if low_high else DASH for low_high in intervals]
        values = [format_value(region.scores.get(key), "") for key, _ in measures]
        texts = [f"{value} ({interval})" for value, interval in zip(values, ends, strict=True)]
        rows.append((region.name, *texts, format_count(region.pieces)))
    heads = ("Region", *(name for _, name in measures), "Pieces")
    caption = "Scores of each quarter of the test areas, with intervals where it has enough independent pieces"
    return TextTable(caption, heads, rows)


def data_card(run: RunData) -> Card:
    """The card of a run's data."""
    plan = data_tables.setting_rows(run.split.plan.model_dump(exclude_unset=True))
    settings = TextTable("Settings of the split", ("Setting", "Value"), plan)
    scenes = TextTable(
        "Cloud cover from the catalog, the other shares as measured on the grid",
        data_tables.scene_heads(run.split),
        data_tables.scene_rows(run.items, run.stores, run.quality.outliers, run.split),
    )
    sections = (
        CardSection("Content", text=tuple(_content_text(run))),
        CardSection("Processing", text=(PROCESSING,), tables=(settings,)),
        CardSection("Scenes", tables=(scenes,)),
        _splits_section(run),
        CardSection("Limits", points=tuple(_data_limits(run))),
        CardSection("Licence", text=tuple(_licence_text(run, "stores"))),
        CardSection("How to cite", text=tuple(_citation_text(run))),
    )
    kind = "Data card, written by eopipe from the run that used the data."
    return Card(run.title, kind, _data_front_matter(run), sections)


def _content_text(run: RunData) -> Iterator[str]:
    yield f"{run.images} of {run.collections}, {run.period}: {run.extent}."
    bands, classes = join_words(list(run.model["bands"])), join_words(list(run.classes))
    yield f"Bands: {bands}. Labels: {classes}. Task: {run.metrics.task}."


def _splits_section(run: RunData) -> CardSection:
    split_heads = ("Class", "Train", "Validation", "Test")
    gap_heads, unit = ("Splits", "Pixels", "On the ground"), data_tables.split_unit(run.split)
    leak_heads = ("Kind", "Number", "Example", "Reason")
    return CardSection(
        "Labels and splits",
        tables=(
            TextTable("Labelled pixels and chips of each split", split_heads, data_tables.pixel_rows(run.split)),
            TextTable("Chips that are used, and not", ("Chips", "Number", "Share"), data_tables.chip_rows(run.split)),
            TextTable(f"Gap between the nearest {unit}", gap_heads, data_tables.gap_rows(run.split, run.pairs)),
            TextTable("Leaks that the config allows, and warnings", leak_heads, data_tables.finding_rows(run.split)),
        ),
    )


def _data_limits(run: RunData) -> Iterator[str]:
    yield f"{'The places of these chips' if run.places else 'One area'} and {run.period}; others may differ."
    yield "Errors of the labels and of the masks are not known."
    for scene, (band, shift) in sorted(run.quality.outliers.items()):
        yield f"Scene {scene} is an outlier: its histogram of {band} is shifted by {shift:.1f} interquartile ranges."
    yield from unused_data(run.split)
    yield from filter(None, [data_tables.gap_text(run.split, run.pairs)])


def _data_front_matter(run: RunData) -> dict[str, Any]:
    chips = sum(len(rows) for rows in run.split.samples.values())
    size = next((category for limit, category in HUB_SIZES if chips < limit), "n>1M")
    front_matter: dict[str, Any] = {"pretty_name": run.title} | _hub_licence(run.statements.license)
    front_matter |= {"task_categories": [hub]} if (hub := TASKS[run.metrics.task].hub) else {}
    return front_matter | {"size_categories": [size], "tags": ["earth-observation", "remote-sensing", "stac", "zarr"]}
