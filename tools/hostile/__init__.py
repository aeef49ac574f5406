"""Files of a hostile partner: a verb that opens one refuses it, or does nothing but what it does with an honest file.

`python -m tools.hostile` makes jobs, private files, run folders, exported models and courier files with odd values in
them, and opens each with every verb that reads such a file. A variant repeats by its name: `--only NAME`.
"""
