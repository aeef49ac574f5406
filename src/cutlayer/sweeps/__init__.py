"""The same job with other numbers: trials, the front of utility, leak and columns rebuilt, and its knee."""
