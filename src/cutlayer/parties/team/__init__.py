"""The workers of one party: processes that divide every batch, and the lanes between them."""
