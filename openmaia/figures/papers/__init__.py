"""The papers' figures and tables with our numbers beside the published ones, clearly told apart: what is published is
labelled "paper:" and drawn hollow, wherever it appears, and never enters a result of ours."""
