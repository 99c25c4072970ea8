"""What a project folder and the rules of the workflow call: init, run, lock, words of a job line."""
