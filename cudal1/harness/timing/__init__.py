"""Time candidates: quads of bursts, their statistics, and how far a claim is believed."""
