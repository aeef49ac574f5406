"""The names of the hooks."""

HOOKS = ("labels", "embedding_out", "embeddings_in", "cut_gradient", "gradient_out", "local_loss", "update")
"""Hooks whose calls are counted, in the order in which a training step calls them."""
