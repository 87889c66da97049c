"""Models: target networks, image generators and editors, and backbones (the models that play the agent)."""
