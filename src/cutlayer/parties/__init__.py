"""The protocol: the active and the passive party, read top to bottom."""
