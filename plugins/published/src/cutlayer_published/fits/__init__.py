"""Fits of a bottom model by gradient descent on its own columns: an autoencoder, and SCARF."""
