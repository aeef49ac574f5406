"""Organisations in processes and folders of their own, on real data, against all of them in one process.

`python -m tools.organisations --data ../shared/data` trains two organisations on Criteo, two on FATE's default of
credit and three on Adult. Their tables are shuffled and overlap in part; links use TLS, and private set intersection
finds the common rows. The same job then runs in one process on exactly the rows that are common: losses and weights
must be equal.
"""
