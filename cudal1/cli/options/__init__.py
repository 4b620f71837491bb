"""Options and arguments that several commands take, read and checked."""
