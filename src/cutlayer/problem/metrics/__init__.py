"""Metrics of predictions and scores, also for more rows than fit into memory."""
