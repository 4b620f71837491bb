"""Code that both sides of the trust boundary may import; workers import nothing else of ours."""
