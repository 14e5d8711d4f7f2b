"""The paper, re-run: its published figures beside ours. ``python -m studies list`` lists them."""
