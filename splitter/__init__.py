"""Compiler that splits a PyTorch training script into a worker and a trainer."""

__version__ = "0.1.0"
