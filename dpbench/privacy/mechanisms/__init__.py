"""Every other question that a curator answers, one module each."""
