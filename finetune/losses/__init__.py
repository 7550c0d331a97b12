"""Training losses, one per module."""
