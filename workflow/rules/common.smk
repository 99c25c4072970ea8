from functools import partial
from snakemake.exceptions import WorkflowError
from eopipe.run import images as run_images, job_records, repeated, rules as eo
from eopipe.clusters.executor_patches import config_files, has_job_arrays, share_requests, workflow_folder
from eopipe.errors import EopipeError
from eopipe.run.job_logs import describe_jobs

messages = describe_jobs()
try:
    config = eo.checked(config, *config_files(workflow))
    job_records.see_every_change(workflow, config)
except EopipeError as error:
    raise WorkflowError(str(error))

messages.read(config)
RESULTS, STATE = config["results"], config["state"]
# Whole paths: a project may include these rules, and derive from them, in a Snakefile of its own.
WORKFLOW = eo.share_with_jobs(workflow_folder(workflow))
ENVIRONMENT = str(WORKFLOW / "workflow/envs/eopipe.yaml")
# Labels of an asset differ from scene to scene; a chip set has stores of its own, and a map for each of them.
PER_SCENE, COMPOSITES = config["label"]["asset"] is not None, config["composite"]["method"] != "none"
IS_CHIP_SET, STORES = config["chip_set"] is not None, config["chip_set"] or RESULTS
IS_MOSAIC = run_images.has_mosaic(config)
IMAGES = f"{STORES}/{'composites' if COMPOSITES else 'tiles'}/{{}}.zarr/manifest.json"
chips = partial(run_images.chips, config, checkpoints)
params_for, machine = partial(eo.params_for, config), partial(eo.resources_for, config)


wildcard_constraints:
    scene="[A-Za-z0-9_][A-Za-z0-9._-]*",
    map="[A-Za-z0-9_][A-Za-z0-9._-]*",
    period="[A-Za-z0-9-]+",
    part="[0-9]+-of-[0-9]+",


def scenes():
    """Names of the frozen scenes, once the search is done; a chip set has none."""
    return [] if IS_CHIP_SET else run_images.scenes(config, SEARCH)


def images():
    """Names of what the model sees: stores of chips, composites with their scenes, or scenes."""
    return chips() or (run_images.periods(config, run_images.frozen_items(config, SEARCH)) if COMPOSITES else scenes())


def each(pattern, names=scenes):
    """An input function: the pattern for every scene, once the scenes are known."""
    return lambda wildcards: [pattern.format(name) for name in names()]


def each_map(name):
    """A map of all images, or one of each image where labels or the split differ between them, for each cell."""
    names = lambda: run_images.map_names(config, SEARCH, None if IS_MOSAIC else images())
    return each(f"{RESULTS}/maps/{{}}/{name}.tif", names)


# The files that stages make and share, by the names of their ports; functions wait for the search.
FILES = eo.shared_files(config) | {
    "frozen": [] if IS_CHIP_SET else f"{RESULTS}/items/manifest.json",
    "scenes": each(f"{RESULTS}/items/{{}}.geojson"),
    "fetched": each(f"{RESULTS}/scenes/{{}}/manifest.json"),
    "stores": each(f"{STORES}/tiles/{{}}.zarr/manifest.json", lambda: chips() or scenes()),
    "tiles": each(IMAGES, images),
    "labels": each(f"{STORES}/labels/{{}}.zarr/manifest.json", lambda: chips() or (scenes() if PER_SCENE else ["all"])),
    # A map of one image beside a mosaic has none, since it is fitted for the maps of the run.
    "calibration_of_map": lambda wildcards: (
        FILES["calibration"] if run_images.is_mosaic(wildcards.map) == IS_MOSAIC else []
    ),
    "single": repeated.single_files(config, eo.named_paths(config, "estimate")),
    "finished_parts": partial(run_images.parts_of_map, config),
    "classes": each_map("classes"),
    "probabilities": each_map("probabilities"),
    "maps": lambda wildcards: each_map("classes")(wildcards) + each_map("probabilities")(wildcards),
    "fold_metrics": repeated.each_fold(config, "metrics.json"),
    "maps_of_trials": lambda wildcards: repeated.each_training(config, each_map("classes")(wildcards), "trial"),
    "rung_models": [
        path for rung, _ in enumerate(config["trials"]["rungs"]) for path in repeated.models_of_rung(config, rung)
    ],
    "member_maps": lambda wildcards: repeated.each_training(config, each_map("classes")(wildcards), "member"),
}


def files(*names):
    """Inputs by name: `**files("grid")` is `grid=FILES["grid"]`."""
    return {name: FILES[name] for name in names}


def tiles_of_period(wildcards):
    """The tiles of the scenes of a composite."""
    return each(f"{RESULTS}/tiles/{{}}.zarr/manifest.json", lambda: images()[wildcards.period])(wildcards)


def tiles_of_map(wildcards):
    """The tiles of a map: one image for a map of its name, all images for a mosaic."""
    image, _ = run_images.image_and_cell(config, wildcards.map)
    return (FILES["tiles"] if run_images.is_mosaic(wildcards.map) else each(IMAGES, lambda: [image]))(wildcards)


def label_source(wildcards):
    """Where the labels of a scene come from."""
    scene = {"scene": f"{RESULTS}/scenes/{wildcards.scene}/manifest.json"}
    return scene if PER_SCENE else eo.named_files(config, "label")
