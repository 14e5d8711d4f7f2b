"""Numbers as people read them in a sentence."""

from __future__ import annotations

from decimal import Decimal


def readable(value: float, digits: int = 3) -> str:
    """Write a number with some significant digits, and no exponent where it can be helped.

    >>> readable(516123.4), readable(0.0001234), readable(-11.02, 2), readable(1.5e12)
    ('516,000', '0.000123', '-11', '1.5e+12')
    """
    short = f"{value + 0.0:.{digits}g}"  # of minus zero this makes zero
    if not 1e-5 <= abs(value) < 1e9:
        return short
    return f"{Decimal(short):,f}"
