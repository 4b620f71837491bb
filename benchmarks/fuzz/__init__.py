"""Odd problems and candidates from grammar pieces, and what must hold of any of them."""
