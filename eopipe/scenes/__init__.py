"""Scenes: STAC Items, where they come from, and the only code that opens a socket."""
