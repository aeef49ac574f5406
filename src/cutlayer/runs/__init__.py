"""One job from its tables to its run folder."""
