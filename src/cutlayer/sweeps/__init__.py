"""The same job with other numbers: trials, the utility-leak front, and its knee."""
