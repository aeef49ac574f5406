"""Defences of gradients by noise, compression and levels, as Fu et al. (2022) compare them."""
