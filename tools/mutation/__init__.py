"""Mutation testing of the code that privacy rests on: change one detail of it and see whether a test fails.

    python -m tools.mutation --measure
    python -m tools.mutation --module 'accounting/*' --sample 100

Cosmic Ray supplies the operators and the session database. Its own runner would start a Python process for each
mutant, of which the import of PyTorch is the larger part; here each mutant is tested in a fork of a process that has
imported everything but the package under test.
"""
