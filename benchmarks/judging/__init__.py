"""Measurements of judging: verdicts a second, and cheats that get through."""
