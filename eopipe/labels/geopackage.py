"""Layers of GeoPackages, written so that the same shapes give the same bytes."""

from pathlib import Path
from typing import Any

LAYER_DATE = "2000-01-01T00:00:00.000Z"


def write_layer(
    path: Path, layer: str, wkb: Any, fields: dict[str, Any], geometry_type: str, crs: str, *, append: bool = False
) -> None:
    """Write shapes (WKB) with the values of their fields as a layer of a GeoPackage, beside others that it has.

    The same shapes give the same bytes; with `append` they are added to the layer.
    """
    import pyogrio
    import pyogrio.raw

    # The threads of the driver read global settings only; the setting is restored.
    before = pyogrio.get_gdal_config_option("OGR_CURRENT_DATE")
    pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": LAYER_DATE})
    try:
        pyogrio.raw.write(
            path,
            wkb,
            list(fields.values()),
            list(fields),
            layer=layer,
            driver="GPKG",
            geometry_type=geometry_type,
            crs=crs,
            append=append,
        )
    finally:
        pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": before})
