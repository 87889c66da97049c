"""The agent's tools that a config may withhold."""

BANK = "bank"
"""The one that ablations give and withhold together with the images of the bank."""

BUILT_IN = ("dataset_exemplars", BANK, "shared", "text2image", "edit_images", "describe_images", "summarize_images")
"""Each is a file of `openmaia.agent.tools.built_in`. Prompts list them in this order."""
