# Trials of the training: each maps the validation places, where `choose` takes the best of them for the model of the run.
in_trial = partial(eo.in_each, "trial", RESULTS)
OF_TRIALS = {"models": eo.each_training(config, [FILES["model"]]), "classes": FILES["maps_of_trials"]}
FILES["single"] += [f"{RESULTS}/trials.json", f"{RESULTS}/trials.html"]


wildcard_constraints:
    trial="[0-9a-f]{8}",


# What a profile requests for the stage holds for the maps of its trials.
share_requests(workflow, {"predict_trial": "predict"})


use rule predict as predict_trial with:
    input:
        **files("chips"),
        tiles=tiles_of_map,
        model=TRAINED,
    output:
        classes=in_trial(f"{RESULTS}/maps/{{map}}/classes.tif"),
        probabilities=in_trial(f"{RESULTS}/maps/{{map}}/probabilities.tif"),
    log:
        f"{RESULTS}/logs/predict/trial-{{trial}}-{{map}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/predict/trial-{{trial}}-{{map}}.tsv"


rule choose:
    "Choose the model: that of the trial with the best score on the validation places."
    input:
        **files("tiles", "labels", "chips"),
        **OF_TRIALS,
    output:
        root=FILES["model"],
        leaderboard=f"{RESULTS}/trials.json",
        page=f"{RESULTS}/trials.html",
    log:
        f"{RESULTS}/logs/choose.log",
    benchmark:
        f"{RESULTS}/benchmarks/choose.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("choose", mem_mb=3000, runtime=lambda wildcards, input: 20 + eo.volume(input.classes) // 100),
    params:
        **params_for("choose", folders=["models", "tiles", "labels"]),
        model=subpath(output.root, parent=True),
    shell:
        "exec eopipe choose --models {params.models:q} --classes {input.classes:q} --tiles {params.tiles:q} --labels"
        " {params.labels:q} --chips {input.chips:q} --model {params.model:q} --leaderboard {output.leaderboard:q}"
        " --page {output.page:q} {params.options} {resources.knobs} > {log:q} 2>&1"
