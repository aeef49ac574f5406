"""Attacks of the active party on features, from embeddings."""
