"""Own models: cross-fitted candidates that correct what all others get wrong."""
