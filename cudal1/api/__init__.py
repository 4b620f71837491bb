"""The functions that other people's Python programs call; `cudal1` itself exports them.

Nothing here judges: a call starts the command line in a process of its own and reads its JSON.
"""
