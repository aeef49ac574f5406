"""Problem that is learned: the task with its metrics, and the columns of a bottom model."""
