"""The program `cudal1`, which `bin/cudal1` starts in an isolated interpreter."""

from cudal1.cli import app

app(prog_name="cudal1")
