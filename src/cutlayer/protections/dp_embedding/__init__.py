"""Differentially private embeddings: the protection and its options."""
