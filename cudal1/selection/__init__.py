"""Selection: exemplars for a prompt, rewards for answers, and the better of two policies."""
