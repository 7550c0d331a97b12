"""Training losses, in one module by what they are of."""
