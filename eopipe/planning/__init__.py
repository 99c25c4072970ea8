"""Before a run: a config for an area (`init`), its mistakes (`check`), a forecast of what it writes (`plan`)."""
