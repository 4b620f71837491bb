"""Measurements of the ledger at a size of millions, and under kills."""
