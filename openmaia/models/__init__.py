"""Models: targets, generators, editors and backbones."""
