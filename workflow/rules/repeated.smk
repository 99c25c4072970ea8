# Trials of the training, of which `choose` takes the best by its map of the validation places, or members of an ensemble,
# whose mean is the model. A run has one of the two; each training maps the places where it is scored.
in_trial, in_member = partial(repeated.in_each, "trial", RESULTS), partial(repeated.in_each, "member", RESULTS)
OF_TRAININGS = {"models": repeated.each_training(config, [FILES["model"]])}
MODEL_OF_TRIALS, MODEL_OF_MEMBERS = (FILES["model"] if KIND == kind else [] for kind in ("trial", "member"))
OF_TRIALS = {"classes": FILES["maps_of_trials"], "rungs": repeated.each_rung(config)}
OF_TRIALS |= files("tiles", "labels", "chips")


wildcard_constraints:
    trial="[0-9a-f]{8}",
    member="[0-9]+",
    rung="[0-9]+",


# What a profile requests for the stage holds for the maps of trials and members, and for the trainings up to a rung.
share_requests(workflow, {"predict_trial": "predict", "predict_member": "predict", "train_rung": "train"})


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
        f"{RESULTS}/logs/choose/rung-{{rung}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/choose/rung-{{rung}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("choose", mem_mb=1000, runtime=10),
    params:
        **params_for("choose", folders=["models"], optional=["previous"]),
    shell:
        "exec eopipe choose --reducer halving --models {params.models:q} {params.previous:q} --rung {output.rung:q}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


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


use rule predict as predict_member with:
    input:
        **files("chips"),
        tiles=tiles_of_map,
        model=TRAINED,
    output:
        classes=in_member(f"{RESULTS}/maps/{{map}}/classes.tif"),
        probabilities=in_member(f"{RESULTS}/maps/{{map}}/probabilities.tif"),
    log:
        f"{RESULTS}/logs/predict/member-{{member}}-{{map}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/predict/member-{{member}}-{{map}}.tsv"


rule choose:
    "Choose the model of the trial with the best score on the validation places."
    input:
        **OF_TRAININGS,
        **OF_TRIALS,
    output:
        root=MODEL_OF_TRIALS,
        leaderboard=f"{RESULTS}/trials.json",
        page=f"{RESULTS}/trials.html",
    log:
        f"{RESULTS}/logs/choose/model.log",
    benchmark:
        f"{RESULTS}/benchmarks/choose/model.tsv"
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


rule combine:
    "Combine the members of an ensemble into one model, whose prediction is the mean of theirs."
    input:
        **OF_TRAININGS,
    output:
        root=MODEL_OF_MEMBERS,
    log:
        f"{RESULTS}/logs/choose/model.log",
    benchmark:
        f"{RESULTS}/benchmarks/choose/model.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("choose", mem_mb=2000, runtime=30),
    params:
        **params_for("choose", folders=["models"]),
        model=subpath(output.root, parent=True),
    shell:
        "exec eopipe choose --reducer mean --models {params.models:q} --model {params.model:q} {params.options}"
        " {resources.knobs} > {log:q} 2>&1"
