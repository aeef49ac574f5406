"""Model completion: a passive party turns its bottom model into a classifier of its own."""
