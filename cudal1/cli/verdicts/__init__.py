"""Verdicts as a person or a program reads them, and the files that hold them."""
