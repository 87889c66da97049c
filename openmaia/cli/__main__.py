"""Lets `python -m openmaia.cli` run the command line."""

from openmaia.cli.main import main

main()
