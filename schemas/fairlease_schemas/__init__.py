"""Floor 0: the words Fairlease speaks, as types. No behaviour beyond reading and writing them."""
