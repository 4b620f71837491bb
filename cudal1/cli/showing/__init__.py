"""Gathers what a ledger holds of a candidate or problem, and puts it into lines of text."""
