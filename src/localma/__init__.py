"""Localized model averaging: learn how far to trust each trained model for this input."""
