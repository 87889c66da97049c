"""Whether the applications find effects that are known: started by hand with `make applications`."""
