"""What every protection has: hooks, the views it is given, the chain that calls it, evidence."""
