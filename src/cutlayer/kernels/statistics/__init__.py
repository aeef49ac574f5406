"""Ranks, scores and summaries of numbers."""
