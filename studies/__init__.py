"""Published tables and figures, rerun: `python -m studies`. Not part of the installed package."""
