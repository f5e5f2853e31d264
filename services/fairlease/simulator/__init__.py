"""The simulator: the production core in virtual time, recorded workloads, and the rules it is compared with."""
