"""What the agents' findings are good for: applications that end in something one can act on."""
