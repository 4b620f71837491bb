"""`python -m cudal1.cli`."""

from cudal1.cli import app

app()
