"""Rescaling and adjusting of private embeddings where the paper's set-up gives them room."""
