"""The program in a source, names and layout aside: its form, and an id that copies share."""
