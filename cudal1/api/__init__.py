"""What other people's Python programs call; `cudal1` itself exports it.

Nothing here judges: a call starts the command line in a process of its own and reads its JSON.
"""
