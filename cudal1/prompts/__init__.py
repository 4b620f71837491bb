"""Prompts: the templates, and the code that fills them."""
