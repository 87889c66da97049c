"""The experiment browser: HTML files that need no server and no network, or pages that a local server renders on demand."""
