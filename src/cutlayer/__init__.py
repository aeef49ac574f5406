"""Cutlayer."""
