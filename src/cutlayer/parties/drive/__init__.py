"""What runs the generators of the parties: in one thread, over links, or into a file."""
