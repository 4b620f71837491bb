"""From a module to its best proven version: authors in turns, a budget, a second measurement."""
