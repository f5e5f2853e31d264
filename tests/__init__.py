"""The tests of Fairlease, from the house to the live system."""
