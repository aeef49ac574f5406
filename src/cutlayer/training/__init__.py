"""Trains a job and its baselines, and writes the run folder."""
