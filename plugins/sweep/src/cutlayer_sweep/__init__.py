"""Searches over the settings of a job: the verbs `cutlayer sweep` and `cutlayer recommend`."""
