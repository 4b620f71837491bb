"""The two ways of `cudal1 judge`: one candidate, or a file of them."""
