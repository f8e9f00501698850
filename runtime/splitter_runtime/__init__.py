"""Runtime of split programs."""

__version__ = "0.1.0"
