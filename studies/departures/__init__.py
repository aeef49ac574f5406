"""Utility after parties have departed: party-wise dropout, further heads, and the active party alone."""
