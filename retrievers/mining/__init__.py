"""Bitext mining: sentence pairs that are translations of each other, found in two monolingual texts."""
