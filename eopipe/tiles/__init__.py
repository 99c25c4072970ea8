"""The bytes of a tile: its grid, its store, and the shards of Zarr v3 that hold it."""
