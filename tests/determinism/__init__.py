"""The same log on every machine, in every process, whatever the hash seed."""
