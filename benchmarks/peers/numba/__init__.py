"""The applications in numba, one file each: loops as one writes them by hand."""
