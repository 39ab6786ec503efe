"""The version, which entries of the disk cache depend on."""

__version__ = "0.1.0"
