"""Agreement of the parties before step 0: the job, the rows and their split, and who is still needed."""
