"""One file for each format of dictionaries: `openmaia.models.targets.dictionary_format` finds them."""
