"""The command line: commands, terminal output, checks of the installation, and building of services from a config."""
