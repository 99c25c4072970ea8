"""What a stored number of a known product means where its STAC Item does not say it.

Sources, by family:

- `sentinel-2`: Sentinel-2 Products Specification Document (S2-PDGS-TAS-DI-PSD), and
  https://sentiwiki.copernicus.eu/web/s2-products: quantification 10000 for reflectance, 1000 for AOT and WVP;
  since processing baseline 04.00 (January 2022) reflectance is shifted by 1000; 0 stays no data.
- `landsat`: LSDS-1619, Landsat 8-9 Collection 2 Level 2 Science Product Guide, tables 6-1 and 6-2: surface
  reflectance DN * 0.0000275 - 0.2, surface temperature DN * 0.00341802 + 149 kelvin, fill 0; QA_PIXEL fill 1.
- `hls-s30`, `hls-l30`: HLS User Guide 2.0, tables 6 to 9: reflectance 0.0001, thermal bands of L30 0.01 degrees
  Celsius, angles 0.01 degrees, fill -9999 (angles 40000, Fmask 255).
- `sentinel-1-rtc`: https://planetarycomputer.microsoft.com/dataset/sentinel-1-rtc: gamma nought as linear power,
  fill -32768.

Everything else is taken as it is: the Copernicus DEM, for one, holds metres and has no number for no data.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

APPLIED = ("earthsearch:boa_offset_applied", "sentinel:boa_offset_applied")
BASELINE = ("s2:processing_baseline", "sentinel:processing_baseline", "processing:version")
SHIFTED = 4.0


@dataclass(frozen=True)
class BandScaling:
    """Physical value = stored * scale + offset; `nodata` is no value. None: not known."""

    scale: float | None = None
    offset: float | None = None
    nodata: float | None = None


# Of each family the rows in order; the first whose pattern is the whole name of the asset holds.
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
    """What the documents of its product say of an asset; nothing for products that are not known."""
    family, name = _family(item), re.sub(r"_\d+m$", "", asset.lower())
    found = next((told for pattern, told in PRODUCTS.get(family, ()) if re.fullmatch(pattern, name)), BandScaling())
    if family == "sentinel-2" and found.scale == 1e-4 and (_baseline(item["properties"]) or 0) >= SHIFTED:
        return replace(found, offset=-0.1)
    return found


def is_offset_applied(item: dict[str, Any]) -> bool:
    """Whether the catalog has taken the offset out of the pixels already; many such items still state it."""
    return any(item["properties"].get(key) in (True, "true", "True") for key in APPLIED)


def _family(item: dict[str, Any]) -> str:
    told, names = item["properties"], (str(item["id"]).lower(), str(item.get("collection")).lower())
    if found := next((m for name in names if (m := re.match(r"hls2?[-._]?([sl]30)", name))), None):
        return f"hls-{found[1]}"
    if str(told.get("landsat:correction")).upper() in ("L2SP", "L2SR") or names[1].startswith("landsat-c2-l2"):
        return "landsat"
    if "sentinel-1-rtc" in names[1]:
        return "sentinel-1-rtc"
    return "sentinel-2" if _is_sentinel2(told, names[1]) and _baseline(told) is not None else ""


def _is_sentinel2(told: dict[str, Any], collection: str) -> bool:
    own = any(key in told for key in BASELINE[:2])
    return own or collection.startswith("sentinel-2") or str(told.get("platform")).lower().startswith("sentinel-2")


def _baseline(told: dict[str, Any]) -> float | None:
    """The processing baseline as a number; without it nobody knows what Sentinel-2's numbers mean."""
    value = next((told[key] for key in BASELINE if told.get(key)), None)
    if value is None and (found := re.search(r"_N(\d\d)(\d\d)_", str(told.get("s2:product_uri")))):
        value = f"{found[1]}.{found[2]}"
    found = re.fullmatch(r"\d{1,2}(\.\d+)?", str(value))
    return float(found[0]) if found else None
