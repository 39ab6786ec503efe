"""The tests of the CUDA back end on a GPU, through CuPy: ``python -m tests.gpu``."""
