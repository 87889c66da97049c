"""Reads the user's images from folders and Hugging Face datasets, and divides them into the explore and the test split."""
