"""Reads the user's images from folders and Hugging Face datasets, and divides them into an explore and a test split.

Agents, which describe units of a network, see images of the explore split only. Their descriptions are tested with
images of the test split.
"""
