"""Run a problem's own code so that whatever it does costs that problem alone."""
