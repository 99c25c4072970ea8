"""eopipe in a checkout: `snakemake --cores all` runs the demo. The workflow is workflow/Snakefile, used as a module."""

from eopipe.clusters.executor_patches import config_files

# Your own config replaces the demo's instead of being merged with it.
if not config_files(workflow):

    configfile: "config/config.yaml"


module eopipe:
    snakefile:
        "workflow/Snakefile"
    config:
        config


use rule * from eopipe
