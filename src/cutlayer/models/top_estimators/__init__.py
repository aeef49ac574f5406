"""Top models that are fitted at once: linear models, boosting, networks, and their average."""
