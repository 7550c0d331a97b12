"""Translate with a large language model that is shown how the target language already says it."""

__version__ = "0.1.0"
