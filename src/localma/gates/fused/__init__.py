"""The fused engine: networks trained and evaluated in one compiled kernel."""
