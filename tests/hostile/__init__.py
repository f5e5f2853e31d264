"""What a stranger may write: files of it, each put through the entry points as they are."""
