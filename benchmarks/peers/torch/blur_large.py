"""`benchmarks.apps.blur_large` in PyTorch."""

from benchmarks.peers.torch.blur import blur as blur_large

__all__ = ["blur_large"]
