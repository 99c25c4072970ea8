"""The project folder (init, run, lock) and the helpers of the workflow's rules."""
