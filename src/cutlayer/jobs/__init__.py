"""Runs jobs: checks and forecasts them, trains them with their baselines, and audits them again."""
