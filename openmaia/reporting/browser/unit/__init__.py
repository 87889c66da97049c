"""The page of a unit: its claims with the images that support them, and the conversation."""
