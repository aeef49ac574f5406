"""The same job with other settings: what is measured of each training, and their comparison."""
