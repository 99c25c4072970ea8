# Members of an ensemble, trained with other seeds: `combine` makes one model of them, and each maps the test places.
in_member = partial(repeated.in_each, "member", RESULTS)


wildcard_constraints:
    member="[0-9]+",


# What a profile requests for the stage holds for the maps of the members.
share_requests(workflow, {"predict_member": "predict"})


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


rule combine:
    "Combine the members of an ensemble into one model, whose prediction is the mean of theirs."
    input:
        models=repeated.each_training(config, [FILES["model"]]),
    output:
        root=FILES["model"],
    log:
        f"{RESULTS}/logs/combine.log",
    benchmark:
        f"{RESULTS}/benchmarks/combine.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("combine", mem_mb=2000, runtime=30),
    params:
        **params_for("combine", folders=["models"]),
        model=subpath(output.root, parent=True),
    shell:
        "exec eopipe combine --models {params.models:q} --model {params.model:q} {params.options} {resources.knobs}"
        " > {log:q} 2>&1"
