"""The version of this package, for every layer."""

__version__ = "0.1.0"
