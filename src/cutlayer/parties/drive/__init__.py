"""Drivers of the parties' generators: in one thread, over links, or into a file."""
