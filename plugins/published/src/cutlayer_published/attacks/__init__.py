"""Attacks on columns that train many models of their own: SDAR and LiRA."""
