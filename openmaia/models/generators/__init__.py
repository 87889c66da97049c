"""Generators and editors: pipelines of diffusers, and servers with the images API."""
