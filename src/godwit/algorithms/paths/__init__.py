"""Common parts of searches: the result, predecessors, weights and verifiers."""
