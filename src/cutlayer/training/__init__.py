"""Trains a job and leaves a run folder; trains what a run is compared with."""
