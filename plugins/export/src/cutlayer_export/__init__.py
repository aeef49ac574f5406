"""One party's part of a trained model as files of its own: the verb `cutlayer export`."""
