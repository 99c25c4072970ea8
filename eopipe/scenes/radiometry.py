"""Scale, offset and nodata of known products, where a STAC Item does not state them.

Sources, by family:

- `sentinel-2`: Sentinel-2 Products Specification Document (S2-PDGS-TAS-DI-PSD), and
  https://sentiwiki.copernicus.eu/web/s2-products: quantification 10000 for reflectance, 1000 for AOT and WVP;
  since processing baseline 04.00 (January 2022) reflectance has an offset of 1000; 0 is still nodata.
- `landsat`: LSDS-1619, Landsat 8-9 Collection 2 Level 2 Science Product Guide, tables 6-1 and 6-2: surface
  reflectance DN * 0.0000275 - 0.2, surface temperature DN * 0.00341802 + 149 kelvin, fill 0; QA_PIXEL fill 1.
- `hls-s30`, `hls-l30`: HLS User Guide 2.0, tables 6 to 9: reflectance 0.0001, thermal bands of L30 0.01 degrees
  Celsius, angles 0.01 degrees, fill -9999 (angles 40000, Fmask 255).
- `sentinel-1-rtc`: https://planetarycomputer.microsoft.com/dataset/sentinel-1-rtc: gamma nought as linear power,
  fill -32768.

Everything else is read as it is: the Copernicus DEM, for one, is in metres and has no nodata value.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

APPLIED = ("earthsearch:boa_offset_applied", "sentinel:boa_offset_applied")
BASELINE = ("s2:processing_baseline", "sentinel:processing_baseline", "processing:version")
FIRST_WITH_OFFSET = 4.0


@dataclass(frozen=True)
class BandScaling:
    """Physical value = stored * scale + offset; `nodata` marks pixels without a value. None: not known."""

    scale: float | None = None
    offset: float | None = None
    nodata: float | None = None


# The rows of each family in order; the first whose pattern matches the whole name of the asset applies.
PRODUCTS: dict[str, tuple[tuple[str, BandScaling], ...]] = {
    "sentinel-2": (
        (r"scl|visual|tci|cloud|snow|cld|cloud_probability|.*mask.*|preview|thumbnail", BandScaling()),
        (r"aot|wvp", BandScaling(1e-3, 0.0, 0.0)),
        (r".*", BandScaling(1e-4, 0.0, 0.0)),
    ),
    "landsat": (
        (r"qa_pixel", BandScaling(nodata=1.0)),
        (r"coastal|blue|green|red|nir08|nir|swir16|swir22|sr_b[1-7]", BandScaling(2.75e-5, -0.2, 0.0)),
        (r"lwir|lwir11|st_b6|st_b10", BandScaling(0.00341802, 149.0, 0.0)),
    ),
    "hls-s30": (
        (r"b(0[1-9]|8a|1[0-2])", BandScaling(1e-4, 0.0, -9999.0)),
        (r"[sv][az]a", BandScaling(1e-2, 0.0, 40000.0)),
        (r"fmask", BandScaling(nodata=255.0)),
    ),
    "hls-l30": (
        (r"b1[01]", BandScaling(1e-2, 0.0, -9999.0)),
        (r"b0[1-79]", BandScaling(1e-4, 0.0, -9999.0)),
        (r"[sv][az]a", BandScaling(1e-2, 0.0, 40000.0)),
        (r"fmask", BandScaling(nodata=255.0)),
    ),
    "sentinel-1-rtc": ((r"vv|vh|hh|hv", BandScaling(nodata=-32768.0)),),
}


def product_scaling(item: dict[str, Any], asset: str) -> BandScaling:
    """What the documents of its product say of an asset; nothing for unknown products."""
    family, name = _family(item), re.sub(r"_\d+m$", "", asset.lower())
    rows = PRODUCTS.get(family, ())
    scaling = next((scaling for pattern, scaling in rows if re.fullmatch(pattern, name)), BandScaling())
    is_reflectance = family == "sentinel-2" and scaling.scale == 1e-4
    if is_reflectance and (_baseline(item["properties"]) or 0) >= FIRST_WITH_OFFSET:
        return replace(scaling, offset=-0.1)
    return scaling


def is_offset_applied(item: dict[str, Any]) -> bool:
    """Whether the catalog has removed the offset from the pixels already; many such items still state it."""
    return any(item["properties"].get(key) in (True, "true", "True") for key in APPLIED)


def _family(item: dict[str, Any]) -> str:
    properties = item["properties"]
    names = str(item["id"]).lower(), str(item.get("collection")).lower()
    if hls := next((match for name in names if (match := re.match(r"hls2?[-._]?([sl]30)", name))), None):
        return f"hls-{hls[1]}"
    if str(properties.get("landsat:correction")).upper() in ("L2SP", "L2SR") or names[1].startswith("landsat-c2-l2"):
        return "landsat"
    if "sentinel-1-rtc" in names[1]:
        return "sentinel-1-rtc"
    return "sentinel-2" if _is_sentinel2(properties, names[1]) and _baseline(properties) is not None else ""


def _is_sentinel2(properties: dict[str, Any], collection: str) -> bool:
    if any(key in properties for key in BASELINE[:2]) or collection.startswith("sentinel-2"):
        return True
    return str(properties.get("platform")).lower().startswith("sentinel-2")


def _baseline(properties: dict[str, Any]) -> float | None:
    """The processing baseline as a number; without it the meaning of Sentinel-2's numbers is unknown."""
    value = next((properties[key] for key in BASELINE if properties.get(key)), None)
    if value is None and (uri := re.search(r"_N(\d\d)(\d\d)_", str(properties.get("s2:product_uri")))):
        value = f"{uri[1]}.{uri[2]}"
    number = re.fullmatch(r"\d{1,2}(\.\d+)?", str(value))
    return float(number[0]) if number else None
