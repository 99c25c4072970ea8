"""STAC in and out: searched catalogs, the selected and frozen scenes, and what a run writes about itself."""
