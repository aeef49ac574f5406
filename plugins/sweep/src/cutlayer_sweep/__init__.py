"""The same job with other settings: the verbs `cutlayer compare`, `cutlayer sweep` and `cutlayer recommend`."""
