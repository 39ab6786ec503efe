"""Rewrites for targets on which many blocks of threads run at once: reductions, scans and scatters."""
