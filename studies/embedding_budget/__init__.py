"""What a total privacy budget of embeddings buys, spent in every epoch or once."""
