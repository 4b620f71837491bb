"""Check candidates: their bursts, the comparison of their outputs, and what else was seen."""
