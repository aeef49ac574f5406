"""The memory of the labels that rows were drawn for: its record, and how rows are compared."""
