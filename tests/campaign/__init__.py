"""A campaign of random use against NumPy: ``python -m tests.campaign --minutes N [--seed S]``; see `__main__`."""
