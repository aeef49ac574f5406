"""Which rows the parties share, and in which order: private set intersection, keys, proofs, held rows."""
