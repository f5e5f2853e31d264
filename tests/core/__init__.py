"""Stories and tables about the pure core."""
