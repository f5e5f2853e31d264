"""The simulator: the deciders of the services in virtual time, over machines and people that are drawn."""
