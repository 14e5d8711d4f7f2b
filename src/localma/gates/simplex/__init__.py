"""Weights on the simplex that minimise a mean loss, with a certificate."""
