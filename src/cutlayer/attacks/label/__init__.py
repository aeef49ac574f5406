"""Attacks of a passive party on labels, from gradients and embeddings."""
