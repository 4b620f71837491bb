"""The judge's answers: what an output should be, and how far from it an output may lie."""
