"""Training: from the opened inputs through the loop and its steps to the published model, on any number of workers."""
