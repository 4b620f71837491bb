"""Measurements of what becomes of answers: bills, extraction, retrieval."""
