"""Files that keep bytes: durable, checksummed, and arrays that the system pages."""
