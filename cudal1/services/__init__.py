"""What the command line and the stages both need: it introduces worlds to each other."""
