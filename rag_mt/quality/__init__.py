"""How good a translation is, by a model that sees no reference."""
