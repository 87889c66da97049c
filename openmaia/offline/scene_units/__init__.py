"""Units over the scene graphs of drawn images, whose truth is known by meaning and not by pixels."""
