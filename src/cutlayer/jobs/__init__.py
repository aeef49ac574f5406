"""The order of work: check and forecast a job, run it with everything it is compared with, audit it again."""
