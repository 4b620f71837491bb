"""Endpoints that speak OpenAI's chat completions, and what asking them costs."""
