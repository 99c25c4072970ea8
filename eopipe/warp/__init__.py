"""Scenes onto grids: pixels copied, resampled or reprojected, region by region."""
