"""What searches have in common: their result, predecessors and their verification."""
