"""The terminal side of commands: answers, complaints, progress, exit codes."""
