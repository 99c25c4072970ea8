"""One module per stage, with one function."""
