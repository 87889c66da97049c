"""Generators (text-to-image models) and editors (instruction-based image-editing models), as pipelines of diffusers."""
