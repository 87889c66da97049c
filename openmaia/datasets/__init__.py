"""Reads the user's images from folders and Hugging Face datasets, and divides them into an explore and a test split."""
