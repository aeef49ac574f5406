"""Certificates of parties: names in them, the files of one party, a small authority, and the check of a peer."""
