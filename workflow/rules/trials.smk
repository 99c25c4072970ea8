# Trials of the training: each maps the validation places, where `choose` takes the best of them for the model of the run.
in_trial = partial(repeated.in_each, "trial", RESULTS)
OF_TRIALS = {"models": repeated.each_training(config, [FILES["model"]]), "classes": FILES["maps_of_trials"]}
OF_TRIALS["rungs"] = repeated.each_rung(config)
FILES["single"] += [f"{RESULTS}/trials.json", f"{RESULTS}/trials.html"]


FILES["single"] += repeated.each_rung(config)


wildcard_constraints:
    trial="[0-9a-f]{8}",
    rung="[0-9]+",


# What a profile requests for the stage holds for the maps of its trials, and for their trainings up to a rung.
share_requests(workflow, {"predict_trial": "predict", "train_rung": "train"})


use rule train as train_rung with:
    output:
        root=f"{RESULTS}/trials/rung-{{rung}}/model-trial-{{trial}}/manifest.json",
    log:
        f"{RESULTS}/logs/train/rung-{{rung}}-trial-{{trial}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train/rung-{{rung}}-trial-{{trial}}.tsv"
    resources:
        **machine(
            "train",
            "--state",
            f"{STATE}/train/rung-{{rung}}-trial-{{trial}}",
            mem_mb=eo.training_mb(config),
            disk_mb=1000,
        ),
        runtime=eo.training_minutes(config),


rule promote:
    "Name the trials that continue behind a rung: those with the best validation scores."
    input:
        unpack(partial(repeated.rung_files, config)),
    output:
        rung=f"{RESULTS}/trials/rung-{{rung}}.json",
    log:
        f"{RESULTS}/logs/promote/rung-{{rung}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/promote/rung-{{rung}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("promote", mem_mb=1000, runtime=10),
    params:
        **params_for("promote", folders=["models"], optional=["previous"]),
    shell:
        "exec eopipe promote --models {params.models:q} {params.previous:q} --rung {output.rung:q} {params.options}"
        " {resources.knobs} > {log:q} 2>&1"


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
    "Choose the model of the trial with the best score on the validation places."
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
        **params_for("choose", folders=["models", "tiles", "labels"], optional=["rungs"]),
        model=subpath(output.root, parent=True),
    shell:
        "exec eopipe choose --models {params.models:q} --classes {input.classes:q} --tiles {params.tiles:q} --labels"
        " {params.labels:q} --chips {input.chips:q} {params.rungs:q} --model {params.model:q} --leaderboard {output.leaderboard:q}"
        " --page {output.page:q} {params.options} {resources.knobs} > {log:q} 2>&1"
