"""Private embeddings as published, and Cutlayer's own at equal total epsilon."""
