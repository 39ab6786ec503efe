"""The applications in PyTorch, one file each: a function for `torch.compile`; its numbers are static."""
