"""Developer tooling: the generators of derived files. Not shipped."""
