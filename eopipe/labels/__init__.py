"""Label stores on the grid, from rasters and vectors."""
