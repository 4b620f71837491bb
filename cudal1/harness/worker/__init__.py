"""THE UNTRUSTED SIDE: whatever is loaded here shares a process with candidate code."""
