"""Known products, one record each: how an item is recognised, scales and nodata, cloud masks, tile, true colour.

Another sensor is one record here, an example config and a test. Sources, by product:

- `sentinel-2`: Sentinel-2 Products Specification Document (S2-PDGS-TAS-DI-PSD), and
  https://sentiwiki.copernicus.eu/web/s2-products: quantification 10000 for reflectance, 1000 for AOT and WVP; 0 is
  nodata. Since processing baseline 04.00 (25 January 2022) reflectance has an offset of 1000; earlier acquisitions
  have it too if they were processed again (Collection-1, baseline 05.00 and later). SCL: L2A Algorithm Theoretical
  Basis Document 2.10, table 3: 0 no data, 1 saturated or defective, 3 cloud shadow, 8 and 9 cloud, 10 cirrus, 11 snow
  or ice.
- `landsat`: LSDS-1619, Landsat 8-9 Collection 2 Level 2 Science Product Guide, tables 6-1 and 6-2: surface
  reflectance DN * 0.0000275 - 0.2, surface temperature DN * 0.00341802 + 149 kelvin, fill 0; QA_PIXEL fill 1, bit 0
  fill, 1 dilated cloud, 2 cirrus, 3 cloud, 4 cloud shadow, 5 snow.
- `hls-s30`, `hls-l30`: HLS User Guide 2.0, tables 6 to 9: reflectance 0.0001, thermal bands of L30 0.01 degrees
  Celsius, angles 0.01 degrees, fill -9999 (angles 40000, Fmask 255); Fmask bit 1 cloud, 2 adjacent to cloud or shadow,
  3 cloud shadow, 4 snow or ice.
- `sentinel-1-rtc`: https://planetarycomputer.microsoft.com/dataset/sentinel-1-rtc: gamma nought as linear power,
  fill -32768.

Everything else is read as it is: the Copernicus DEM, for one, is in metres and has no nodata value.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

MaskKind = Literal["classes", "bits", "probability"]
# How a mask is read, and the classes or bits that are masked: clouds, their shadows, snow, nodata.
Standard = tuple[MaskKind, tuple[int, ...]]
# Properties with the processing baseline of Sentinel-2.
BASELINE = ("s2:processing_baseline", "sentinel:processing_baseline", "processing:version")
# Name of a product: day of acquisition, and day of processing or a little later than the acquisition.
SENTINEL2_NAME = re.compile(r"S2[A-D]_MSIL(?:1C|2A)_(\d{8})T\d{6}(?:_N\d{4})?(?:_R\d{3}_T\w{5}_(\d{8})T\d{6})?")
# Tiles of MGRS (33TWL) in ids of Sentinel-2 and HLS, path and row of WRS-2 (190028) in ids of Landsat.
MGRS_TILE = re.compile(r"(?<![0-9A-Z])T?(\d{1,2}[C-HJ-NP-X][A-HJ-NP-Z][A-HJ-NP-V])(?![0-9A-Z])")
WRS2_TILE = re.compile(r"(?<![0-9A-Z])L[COTEM]0\d(?:_[A-Z0-9]{4})?_(\d{6})(?!\d)")
COMMON_COLOURS, NUMBERED_COLOURS = ("red", "green", "blue"), ("b04", "b03", "b02")
FMASK: Mapping[str, Standard] = {"fmask": ("bits", (1, 2, 3, 4))}
PROBABILITY: Standard = ("probability", ())


@dataclass(frozen=True)
class BandScaling:
    """Physical value = stored * scale + offset; `nodata` marks pixels without a value. None: not known."""

    scale: float | None = None
    offset: float | None = None
    nodata: float | None = None


@dataclass(frozen=True)
class Product:
    """What the documents of a product say of its items.

    `scalings` are rows of a pattern and its scaling; the first whose pattern matches the whole name of an asset, in
    small letters, applies. `masks` are by the name of their asset, `tile` is in the id of an item, `colours` are the
    names of red, green and blue in small letters.
    """

    name: str
    is_of: Callable[[dict[str, Any]], bool]
    scalings: tuple[tuple[str, BandScaling], ...]
    masks: Mapping[str, Standard] = field(default_factory=dict)
    tile: "re.Pattern[str] | None" = None
    colours: tuple[str, str, str] = COMMON_COLOURS

    def scaling(self, asset: str) -> BandScaling:
        """The scaling of an asset; nothing for one that the documents do not name."""
        rows = (scaling for pattern, scaling in self.scalings if re.fullmatch(pattern, asset))
        return next(rows, BandScaling())


def _names(item: dict[str, Any]) -> tuple[str, str]:
    return str(item["id"]).lower(), str(item.get("collection")).lower()


def _is_hls(kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda item: any(re.match(rf"hls2?[-._]?{kind}", name) for name in _names(item))


def _is_landsat(item: dict[str, Any]) -> bool:
    correction = str(item["properties"].get("landsat:correction")).upper()
    return correction in ("L2SP", "L2SR") or _names(item)[1].startswith("landsat-c2-l2")


def _is_sentinel2(item: dict[str, Any]) -> bool:
    properties, collection = item["properties"], _names(item)[1]
    if any(key in properties for key in BASELINE[:2]) or collection.startswith("sentinel-2") or is_esa_product(item):
        return True
    return str(properties.get("platform")).lower().startswith("sentinel-2")


def is_esa_product(item: dict[str, Any]) -> bool:
    """Whether an item is of a Sentinel-2 product of ESA, by its collection, its properties or the product's name."""
    has_properties = any(key.startswith("s2:") for key in item["properties"])
    is_known = re.match(r"sentinel-(2|s2)-(c1-)?l(1c|2a)", _names(item)[1])
    return bool(has_properties or is_known or SENTINEL2_NAME.search(sentinel2_names(item)))


def sentinel2_names(item: dict[str, Any]) -> str:
    """The names of product and datatake that an item states, and its id."""
    properties = item["properties"]
    keys = ("s2:product_uri", "sentinel:product_id", "s2:product_id", "s2:datatake_id", "eopf:datatake_id")
    return " ".join([*(str(properties.get(key) or "") for key in keys), str(item["id"])])


HLS_ANGLES_AND_MASK = (
    (r"[sv][az]a", BandScaling(1e-2, 0.0, 40000.0)),
    (r"fmask", BandScaling(nodata=255.0)),
)
# The first whose items an item is one of.
PRODUCTS = (
    Product(
        "hls-s30",
        _is_hls("s30"),
        (
            (r"b(0[1-9]|8a|1[0-2])", BandScaling(1e-4, 0.0, -9999.0)),
            *HLS_ANGLES_AND_MASK,
        ),
        FMASK,
        MGRS_TILE,
        NUMBERED_COLOURS,
    ),
    Product(
        "hls-l30",
        _is_hls("l30"),
        (
            (r"b1[01]", BandScaling(1e-2, 0.0, -9999.0)),
            (r"b0[1-79]", BandScaling(1e-4, 0.0, -9999.0)),
            *HLS_ANGLES_AND_MASK,
        ),
        FMASK,
        MGRS_TILE,
        NUMBERED_COLOURS,
    ),
    Product(
        "landsat",
        _is_landsat,
        (
            (r"qa_pixel", BandScaling(nodata=1.0)),
            (r"coastal|blue|green|red|nir08|nir|swir16|swir22|sr_b[1-7]", BandScaling(2.75e-5, -0.2, 0.0)),
            (r"lwir|lwir11|st_b6|st_b10", BandScaling(0.00341802, 149.0, 0.0)),
        ),
        {"qa_pixel": ("bits", (0, 1, 2, 3, 4, 5))},
        WRS2_TILE,
    ),
    Product(
        "sentinel-1-rtc",
        lambda item: "sentinel-1-rtc" in _names(item)[1],
        ((r"vv|vh|hh|hv", BandScaling(nodata=-32768.0)),),
    ),
    Product(
        "sentinel-2",
        _is_sentinel2,
        (
            (r"scl|visual|tci|cloud|snow|cld|cloud_probability|.*mask.*|preview|thumbnail", BandScaling()),
            (r"aot|wvp", BandScaling(1e-3, 0.0, 0.0)),
            (r".*", BandScaling(1e-4, 0.0, 0.0)),
        ),
        {
            "scl": ("classes", (0, 1, 3, 8, 9, 10, 11)),
            "cld": PROBABILITY,
            "cloud": PROBABILITY,
            "cloud_probability": PROBABILITY,
        },
        MGRS_TILE,
        NUMBERED_COLOURS,
    ),
)
# Masks are known by the names of their assets alone.
STANDARD: dict[str, Standard] = {name: mask for product in PRODUCTS for name, mask in product.masks.items()}
TRUE_COLOURS = tuple(dict.fromkeys([COMMON_COLOURS, *(product.colours for product in PRODUCTS)]))


def product_of(item: dict[str, Any]) -> Product | None:
    """The product that an item is of; None for one that is not known."""
    return next((product for product in PRODUCTS if product.is_of(item)), None)


def tile_in(name: str) -> str:
    """The tile of MGRS or WRS-2 in the name of a scene; empty without one."""
    tiles = dict.fromkeys(product.tile for product in PRODUCTS if product.tile)
    return next((match[1] for tile in tiles if (match := tile.search(name))), "")


def true_colour_bands(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of red, green and blue, of stacked parts of the middle one; empty where one is missing."""
    by_small = {name.lower(): name for name in names}
    for red, *others in TRUE_COLOURS:
        ends = [name.removeprefix(red) for name in by_small if name == red or name.startswith(f"{red}_")]
        complete = [end for end in ends if all(f"{other}{end}" in by_small for other in others)]
        if complete:
            middle = complete[(len(complete) - 1) // 2]
            return tuple(by_small[f"{colour}{middle}"] for colour in (red, *others))
    return ()


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
