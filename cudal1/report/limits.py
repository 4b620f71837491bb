"""Limits of what one page embeds; the page says itself what was left out.

A page of 250 problems is 2 to 3 MB, however many candidates there were (`benchmarks.report_page`),
and less than 12 MB whatever their sources are: everything else on it is a sum.
"""

NUM_PROBLEMS = 300
"""Problems that have a section of their own; of a larger suite, those with the largest speedups."""
NUM_DRAWN = 120
"""Problems with a drawing of their timing: those with the largest certified speedups."""
NUM_KINDS = 60
"""Kinds of cheat in the gallery; the deciding and the most frequent come first."""
NUM_REJECTED = 60
"""Rejected problems that are named."""
NUM_AUTHORS = 8
"""Authors of one problem that are listed, best first."""
NUM_EXEMPLARS = 6
"""Exemplars of one candidate that are named, fastest first."""
NUM_LINES, NUM_CHARS = 400, 16_000
"""Lines and characters of one source that are shown; a longer source is cut at a line."""
NUM_EVIDENCE_CHARS = 600
"""Characters of one flag's evidence that are shown."""
NUM_QUADS = 60
"""Quads that are drawn of one verdict; of more, every n-th one."""
NUM_BESTS = 30
"""Problems of one training stage with a drawing of their best speedup, the largest ones."""
NUM_POINTS = 150
"""Points of one learning curve; where a stage logged more steps, means of neighbouring ones."""
