"""Scale, offset and nodata of known products, where a STAC Item does not state them.

Since processing baseline 04.00 (25 January 2022) reflectance of Sentinel-2 has an offset of 1000; 0 is still nodata.
Earlier acquisitions have it too if they were processed again (Collection-1, baseline 05.00 and later).
"""

import re
from dataclasses import replace
from typing import Any

from eopipe.scenes.products import BASELINE, SENTINEL2_NAME, BandScaling, is_esa_product, product_of, sentinel2_names

APPLIED = ("earthsearch:boa_offset_applied", "sentinel:boa_offset_applied")
FALSE = (False, "false", "False")
FIRST_WITH_OFFSET, FIRST_DAY_WITH_OFFSET, SENTINEL2_OFFSET = 4.0, "20220125", -0.1
# Names of reflectance bands, of ESA and of common names.
REFLECTANCE = re.compile(
    r"b(0?[1-9]|1[0-2]|8a)|coastal|blue|green|red|rededge[1-3]?|nir|nir0?[89]|swir(1[126]|2[12]|[12])|cirrus"
)


def product_scaling(item: dict[str, Any], asset: str) -> BandScaling:
    """What the documents of its product say of an asset; nothing for unknown products.

    The offset of a Sentinel-2 reflectance is None where neither a processing baseline nor the dates decide it.
    """
    product, name = product_of(item), re.sub(r"_\d+m$", "", asset.lower())
    scaling = product.scaling(name) if product else BandScaling()
    if product is None or product.name != "sentinel-2":
        return scaling
    baseline = processing_baseline(item)
    if scaling.scale != 1e-4:
        return scaling if baseline is not None or is_esa_product(item) else BandScaling()
    if baseline is not None:
        return replace(scaling, offset=SENTINEL2_OFFSET if baseline >= FIRST_WITH_OFFSET else 0.0)
    return replace(scaling, offset=_offset_by_dates(item)) if REFLECTANCE.fullmatch(name) else BandScaling()


def _offset_by_dates(item: dict[str, Any]) -> float | None:
    """The offset of a product of ESA by the days of processing and acquisition; None where they leave it open.

    What was acquired earlier may have been processed again later, with the offset.
    """
    if not is_esa_product(item):
        return None
    properties, product = item["properties"], SENTINEL2_NAME.search(sentinel2_names(item))
    processed = str(properties.get("s2:generation_time") or "")[:10].replace("-", "") or (product and product[2]) or ""
    if processed:
        return SENTINEL2_OFFSET if processed >= FIRST_DAY_WITH_OFFSET else 0.0
    acquired = str(properties.get("datetime") or properties.get("start_datetime") or "")[:10].replace("-", "")
    return SENTINEL2_OFFSET if acquired >= FIRST_DAY_WITH_OFFSET else None


def offset_doubt(item: dict[str, Any], asset: str, stated: BandScaling) -> str:
    """Why the offset of a band is not known, and what decides it; empty where item or product state it.

    Without a baseline and without a date that decides, an item that states a scale follows STAC: its offset is zero.
    """
    if stated.offset is not None or is_offset_applied(item):
        return ""
    product, baseline = product_scaling(item, asset), processing_baseline(item)
    if stated.scale is None and product.scale is not None and product.offset is None:
        return (
            "states neither offset nor processing baseline, and its dates do not show whether it has the offset of "
            f"{SENTINEL2_OFFSET} that Sentinel-2 products have since baseline 04.00; set preprocess.offset to "
            f"{SENTINEL2_OFFSET} or 0, or add s2:processing_baseline to the item"
        )
    has_offset = product.offset == SENTINEL2_OFFSET and stated.scale == product.scale
    if has_offset and not is_offset_unapplied(item):
        version = "date" if baseline is None else f"baseline {baseline:05.2f}"
        return (
            f"states a scale but no offset, while products of its {version} have an offset of {SENTINEL2_OFFSET} "
            f"unless it was removed from the pixels; set preprocess.offset to {SENTINEL2_OFFSET}, or to 0 if it was "
            "removed, or add the offset to the item"
        )
    return ""


def is_offset_applied(item: dict[str, Any]) -> bool:
    """Whether the catalog has removed the offset from the pixels already; many such items still state it."""
    return any(item["properties"].get(key) in (True, "true", "True") for key in APPLIED)


def is_offset_unapplied(item: dict[str, Any]) -> bool:
    """Whether the catalog says that the offset is still in the pixels."""
    return any(item["properties"].get(key) in FALSE for key in APPLIED)


def origin_attributes(item: dict[str, Any]) -> dict[str, list[str]]:
    """What a store says of the origin of its pixels: `sensors`, and `baselines` of Sentinel-2; a composite has several.

    The sensor is the instruments, or else the constellation or the platform; what the item does not state is left out.
    """
    properties, baseline = item["properties"], processing_baseline(item)
    stated = [properties.get(key) for key in ("instruments", "constellation", "platform")]
    sensor: Any = next(filter(None, stated), [])
    names = sensor if isinstance(sensor, list) else [sensor]
    lists = {
        "sensors": sorted({str(name).lower() for name in names}),
        "baselines": [] if baseline is None or product_of(item) is None else [f"{baseline:05.2f}"],
    }
    return {name: values for name, values in lists.items() if values}


def processing_baseline(item: dict[str, Any]) -> float | None:
    """The processing baseline of Sentinel-2 as a number, from a property or the name of the product or datatake."""
    properties = item["properties"]
    value = next((properties[key] for key in BASELINE if properties.get(key)), None)
    if number := re.fullmatch(r"\d{1,2}(\.\d+)?", str(value)):
        return float(number[0])
    in_name = re.search(r"_N(\d\d)\.?(\d\d)(?:_|\b)", sentinel2_names(item))
    return float(f"{in_name[1]}.{in_name[2]}") if in_name else None
