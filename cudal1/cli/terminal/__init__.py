"""What commands print and how they end: answers, complaints, progress."""
