"""Random draws, and the mechanisms that are made of them."""
