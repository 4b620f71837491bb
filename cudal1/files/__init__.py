"""Reading of files that people name, as Python reads them."""
