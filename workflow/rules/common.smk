from functools import partial
from pathlib import Path
from snakemake.exceptions import WorkflowError
from eopipe.run import rules as eo
from eopipe.clusters.arrays import refuse_lost_jobs
from eopipe.clusters.executor_patches import be_patient
from eopipe.config import check
from eopipe.errors import EopipeError
from eopipe.run.project import summary

try:
    config = check(config, *map(str, workflow.configfiles[:1]))
except EopipeError as error:
    raise WorkflowError(str(error))

RESULTS, STATE = config["results"], config["state"]
# Of eopipe: a project may include these rules from a Snakefile of its own.
WORKFLOW = eo.told_to_jobs(Path(workflow.current_basedir).parents[1])
# Labels that are an asset of each scene differ from scene to scene; a file holds for all.
PER_SCENE = config["label"]["asset"] is not None
# The model sees scenes, or composites of them.
COMPOSITES = config["composite"]["method"] != "none"
IMAGES = f"{'composites' if COMPOSITES else 'tiles'}/{{}}.zarr/manifest.json"
options, knobs = partial(eo.options, config), partial(eo.knobs, config)


wildcard_constraints:
    scene="[A-Za-z0-9_][A-Za-z0-9._-]*",
    map="[A-Za-z0-9_][A-Za-z0-9._-]*",
    period="[A-Za-z0-9-]+",


def scenes():
    """Names of the frozen scenes; waits for the search."""
    return sorted(
        p.stem
        for p in Path(checkpoints.search.get().output.root).parent.glob("*.geojson")
    )


def periods():
    """The scenes of each composite; waits for the search."""
    return eo.periods(config, Path(checkpoints.search.get().output.root).parent)


def each(pattern, names=scenes):
    """An input function: the pattern for every scene, once the scenes are known."""
    return lambda wildcards: [f"{RESULTS}/{pattern}".format(name) for name in names()]


each_image = each(IMAGES, periods if COMPOSITES else scenes)


def each_label(wildcards):
    """The label stores: one for each scene, or one for all."""
    return each(
        "labels/{}.zarr/manifest.json", scenes if PER_SCENE else lambda: ["all"]
    )(wildcards)


def each_map(name):
    """One map of all images, or one for each where labels or the split tell them apart."""
    names = periods if COMPOSITES else scenes
    apart = PER_SCENE or eo.splits_images(config)
    return each(f"maps/{{}}/{name}.tif", names if apart else lambda: ["mosaic"])


def tiles_of(wildcards):
    """The tiles of a map: one image for a map of its name, all images for the mosaic."""
    mosaic = wildcards.map == "mosaic"
    return (each_image if mosaic else each(IMAGES, lambda: [wildcards.map]))(wildcards)


def label_source(wildcards):
    """Where the labels of a scene come from."""
    scene = {"scene": f"{RESULTS}/scenes/{wildcards.scene}/manifest.json"}
    return scene if PER_SCENE else eo.named_files(config, "label")
