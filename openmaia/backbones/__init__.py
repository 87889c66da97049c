"""Models that answer chat messages, and the doubles that speak the same protocol."""
