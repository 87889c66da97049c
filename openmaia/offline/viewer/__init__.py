"""A viewer of drawn scenes. It sees pixels alone, with a network that learned them."""
