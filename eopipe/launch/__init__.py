"""Start workers in the right geometry, know who they are, pass signals on, and tell why they ended."""
