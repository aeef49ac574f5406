"""Label leakage from embeddings, with distance correlation, Marvell and label DP."""
