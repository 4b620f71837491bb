"""Devices: their peak rates, locks, turns among judges, and states of rest."""
