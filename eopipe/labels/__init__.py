"""Labels from rasters and vectors."""
