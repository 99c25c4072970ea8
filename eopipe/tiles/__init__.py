"""The bytes of a tile: its grid, its Zarr v3 store, and the reader and writer of its shards."""
