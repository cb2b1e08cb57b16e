"""One self-contained page about a model: HTML with its style, script and data inside, no network."""
