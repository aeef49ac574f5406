"""Private embeddings of features as published and as done here."""
