"""Areas with standard errors, and the accuracy of a map, from a labelled probability sample."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output

NEEDS = ("labelled_sample",)


def estimate(
    classes: Annotated[
        tuple[Path, ...],
        Input("maps of classes or values: one mosaic, or one of each cell", format="image/tiff"),
    ],
    areas: Annotated[
        Path, Output("areas.json", "areas with standard errors, accuracies, error matrix", format="application/json")
    ],
    page: Annotated[Path, Output("areas.html", "the same as one HTML page", format="text/html")],
    *,
    sample: Annotated[
        tuple[Path, ...],
        Input(
            "labelled files of a sample, as eopipe sample writes it: one for each interpreter",
            user=True,
            section="evaluate",
        ),
    ] = (),
    sample_design: Annotated[
        Path | None,
        Input(
            "design of the sample, where the labels are a CSV apart from sample.json",
            user=True,
            section="evaluate",
            derived="eopipe.areas.labelled:design_of",
        ),
    ] = None,
    label_column: Annotated[
        str, Option("column of the labels in the files of the sample", section="evaluate", min_length=1)
    ] = "label",
) -> None:
    """Estimate the area of each class in hectares from a labelled probability sample, and the accuracy of the map.

    Counts of mapped pixels are biased by the errors of the map; what people saw at sampled pixels, weighted by how
    they were drawn, is not. Areas, overall, user's and producer's accuracy and the error matrix in shares of the area
    are those of Olofsson et al. 2014 (doi:10.1016/j.rse.2014.02.015), for a sample of another map those of Stehman
    2014 (doi:10.1080/01431161.2014.930207). The mean of a map of values is corrected by the mean difference of labels
    and map (difference estimator). Intervals of areas are those of Jeffreys in each stratum, whose limits are
    combined (Zou et al. 2009, doi:10.1016/j.csda.2008.09.033), since a standard error says too little of a rare class.
    With several files the label that most interpreters gave counts, and their agreement is measured. Raises
    BadInputError for labels that are no probability sample, as test pixels of a split, for maps of other classes, for
    labels that are no classes, and for a stratum without any; UsageError without a sample.
    """
    from eopipe.areas.areas_document import estimate_areas
    from eopipe.areas.labelled import LabelledSample
    from eopipe.errors import UsageError
    from eopipe.inference.finished_maps import check_whole
    from eopipe.publish import publish
    from eopipe.reporting.page import render_areas
    from eopipe.text_files import write_json

    if not sample:
        raise UsageError("estimate needs --sample, the labelled files of a sample; eopipe sample draws one")
    check_whole(classes)
    labelled = LabelledSample.read(sample, sample_design, label_column)
    estimated = estimate_areas(labelled, classes, [path.name for path in sample])
    with publish(areas) as document, publish(page) as draft:
        write_json(document, estimated.model_dump(mode="json", exclude_defaults=True))
        draft.write_text(render_areas(estimated), encoding="utf-8")
