"""Whether the applications find what is known to be there: by hand, through `make applications`."""
