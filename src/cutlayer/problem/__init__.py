"""What is learned, and from which inputs: the task with its metrics, and the columns of a bottom model."""
