"""The model card, as Mitchell et al. 2019 (doi:10.1145/3287560.3287596) want one, from what the run measured."""

from collections.abc import Iterator
from typing import Any

from eopipe import __version__
from eopipe.reporting import data_tables as facts
from eopipe.reporting.cards import Card, Part, Table
from eopipe.reporting.data_tables import Row
from eopipe.reporting.distances import length, pixel_metres
from eopipe.reporting.licence import UNSTATED, cite_words, licence_matter, licence_words
from eopipe.reporting.limits import limits_of
from eopipe.reporting.run_data import Story, ground_words
from eopipe.reporting.scored import measures_of, scores_part
from eopipe.reporting.spans import collections, span_words, task_of
from eopipe.reporting.wording import count, listed, number, plural

TASKS = {"segmentation": "image-segmentation", "classification": "image-classification"}
ENERGY = (
    "Not measured. The run records and the crate tell the processor time of every job; no energy is guessed from it."
)
MEASURED = {"accuracy": "accuracy", "miou": "mean_iou", "f1_macro": "f1", "rmse": "rmse", "mae": "mae"}


def model_card(story: Story) -> Card:
    """The card of a story's model."""
    parts = (
        Part("Model", tables=(Table("What it is", ("Fact", "Value"), _model(story)),)),
        Part(
            "Intended use", text=(f"Use: {story.said.use.rstrip('.') or UNSTATED.format(name='use')}.", _scope(story))
        ),
        Part("Data and splits", text=tuple(_data(story))),
        scores_part(story),
        Part("Limits", points=tuple(limits_of(story))),
        Part("Energy", text=(ENERGY,)),
        Part("Licence", text=tuple(licence_words(story, "model"))),
        Part("How to cite", text=tuple(cite_words(story))),
        Part("How to use", command=_command()),
    )
    return Card(story.title, "Model card, written by eopipe from the run that made the model.", _matter(story), parts)


def _model(story: Story) -> list[Row]:
    model = story.model
    return [
        ("task", task_of(story)),
        ("answers", number(story.classes)),
        ("architecture", str(model["architecture"])),
        ("parameters", count(model["parameters"])),
        ("bands, by name", number(model["bands"])),
        ("chip", f"{model['chip']} pixels"),
        ("weights (sha256)", story.digests[0][1]),
        ("made by", f"eopipe {__version__}"),
    ]


def _scope(story: Story) -> str:
    wide, _ = pixel_metres(story.pairs[0][0].grid)
    return (
        f"It was made to map {listed(list(story.classes))} from the bands {listed(list(story.model['bands']))} of "
        f"{collections(story)} at {length(wide)} a pixel. Other sensors, bands, pixel sizes, seasons and regions were "
        "not tested."
    )


def _data(story: Story) -> Iterator[str]:
    samples = story.split["samples"]
    yield f"{plural(len(story.items), 'scene')} of {collections(story)}, {span_words(story)}: {ground_words(story)}."
    chips = listed([f"{count(len(samples[name]))} {name}" for name in ("train", "val", "test")])
    gap = facts.gap_words(story.split, story.pairs)
    yield f"Chips: {chips}, split by the method {story.split['plan']['method']}. {gap} The data card tells more."


def _command() -> str:
    return "eopipe predict --model model --tiles TILES.zarr --classes classes.tif --probabilities probabilities.tif"


def _matter(story: Story) -> dict[str, Any]:
    task = TASKS.get(task_of(story))
    kind = {"type": task or "image-regression", "name": task_of(story)}
    scores: dict[str, Any] = story.metrics["model"]
    found = [
        {"type": MEASURED[key], "value": scores[key], "name": name}
        for key, name in measures_of(story)
        if key in MEASURED and scores[key] is not None
    ]
    data = {"type": "eopipe", "name": f"test places of {collections(story)}, {span_words(story)}"}
    told: dict[str, Any] = licence_matter(story.said.license) | {"library_name": "eopipe"}
    told |= {"pipeline_tag": task} if task else {}
    told |= {"tags": ["earth-observation", "remote-sensing", "safetensors", "onnx"]}
    told |= {"metrics": [one["type"] for one in found]} if found else {}
    results = [{"task": kind, "dataset": data, "metrics": found}] if found else []
    return told | ({"model-index": [{"name": story.title, "results": results}]} if results else {})
