"""The report of a run: page, map, model card and data card; and figures for other commands."""
