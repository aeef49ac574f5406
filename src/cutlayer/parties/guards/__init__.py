"""Checks of what a party receives: numbers, and signs of a malicious partner."""
