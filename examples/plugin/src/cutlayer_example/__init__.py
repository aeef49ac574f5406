"""An attack and a protection for Cutlayer."""
