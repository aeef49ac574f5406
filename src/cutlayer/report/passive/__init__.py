"""The report of a passive party's own folder: what it sent, learned and revealed, for the person who signs for it."""
