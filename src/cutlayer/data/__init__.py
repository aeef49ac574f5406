"""A party's rows: sources, ids, alignment, encoding, the memory-mapped store, batches and labels."""
