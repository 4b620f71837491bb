"""The learning experiment: the paper's ablation, row by row, in pieces that resume."""
