"""Utility under a total privacy budget of embeddings, spent in every epoch or once."""
