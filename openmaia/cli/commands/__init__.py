"""The commands. Their modules import what they need only when a command runs, so that --help answers at once."""
