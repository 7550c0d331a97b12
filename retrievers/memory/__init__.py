"""A memory: whole sentences of target-language text that are similar to a draft, and whether they are worth showing."""
