"""Small models that are fitted to a few columns, and what fits them."""
