"""eopipe: satellite scenes to a trained, measured, mapped and citable model.

`snakemake --cores all` runs the demo, with `--configfile my.yaml` another area; `--list` shows the rules.
"""

from pathlib import Path
from snakemake.utils import min_version
from eopipe.clusters.executor_patches import config_files, prepare_executor
from eopipe.run.locate import project_folder
from eopipe.run.project import summary

min_version("9.18.1")

# Your own config replaces the demo's instead of being merged with it.
if not config_files(workflow):

    configfile: "config/config.yaml"


# Paths in a config are relative to its project; --directory overrides this.
workdir: project_folder(Path(config_files(workflow)[0]))


include: "workflow/rules/common.smk"


# What a site needs before each command, and an image of eopipe: both from a profile, for the rules that follow.
if config["setup"]:
    shell.prefix(eo.prefix(config["setup"]))
if config["container"]:

    container: config["container"]


include: "workflow/rules/scenes.smk"
include: "workflow/rules/tiles.smk"
include: "workflow/rules/model.smk"
include: "workflow/rules/maps.smk"
include: "workflow/rules/crate.smk"


rule all:
    "Everything: maps, scores, report, ONNX model, STAC catalog, and the provenance crate of the run."
    default_target: True
    input:
        f"{RESULTS}/report.html",
        f"{RESULTS}/model.onnx",
        f"{RESULTS}/catalog/manifest.json",
        f"{RESULTS}/crate/manifest.json",


onstart:
    prepare_executor(workflow)
    print(eo.reset_future_times(config), end="")


onsuccess:
    print(summary(RESULTS))
