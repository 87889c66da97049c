"""What a run has cost, and what a sweep would: read from records, or predicted from service times."""
