"""The agent's tools that a config may withhold."""

BANK = "bank"
"""The one that exists only where there is a bank."""

SHARED = "shared"
"""The one that exists only where agents may look up what others drew."""

EFFECTS = ("effect", "drives")
"""Methods of `system` that exist only with `task.effects`."""

BUILT_IN = ("dataset_exemplars", BANK, SHARED, "text2image", "edit_images", "describe_images", "summarize_images")
"""Each is a file of `openmaia.agent.tools.built_in`. Prompts list them in this order."""
