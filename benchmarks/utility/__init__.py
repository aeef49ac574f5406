"""Default settings against scikit-learn on the joined columns."""
