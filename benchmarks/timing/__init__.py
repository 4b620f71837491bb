"""Measurements of the clock: of equals, of gains, of noise."""
