"""Contract of all protections: hooks, the views they are given, the chain that calls them, evidence."""
