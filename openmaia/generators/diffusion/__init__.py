"""Text-to-image and instruction-based editing pipelines of diffusers as Generator and Editor."""
