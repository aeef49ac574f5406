"""What parties agree on before step 0: the job, the rows and their split, and who is still needed."""
