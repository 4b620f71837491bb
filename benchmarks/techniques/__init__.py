"""Techniques that are read from sources, beside a person's reading of them."""
