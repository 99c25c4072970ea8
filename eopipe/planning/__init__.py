"""`eopipe plan`: what a run will download, write and need, before anything is downloaded."""
