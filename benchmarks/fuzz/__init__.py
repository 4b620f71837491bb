"""Odd problems and candidates from grammar pieces, and rules that must hold of any of them."""
