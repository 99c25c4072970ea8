"""One module a stage, one function a module."""
