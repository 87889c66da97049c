"""What is kept: run directories, records, the journal of running investigations, exemplars."""
