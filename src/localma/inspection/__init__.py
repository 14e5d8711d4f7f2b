"""Looking inside a fitted model: tables first, then pictures."""
