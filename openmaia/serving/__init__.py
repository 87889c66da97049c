"""OpenMAIA as the laboratory of an agent that is not its own."""
