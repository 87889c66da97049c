"""Reads the user's images from folders and Hugging Face datasets, and divides them into two splits.

Agents see images of the explore split. Descriptions are tested with images of the test split.
"""
