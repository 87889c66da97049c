"""The experiment browser: plain HTML files that need no server and no network."""

from openmaia.reporting.browser.write import write_report

__all__ = ["write_report"]
