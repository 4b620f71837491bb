"""The screen of a source: signs of cheats, and copies of the reference."""
