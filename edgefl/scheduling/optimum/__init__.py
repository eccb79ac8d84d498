"""The optimum of one round with known costs: the best cohort and bandwidth shares, or a bound on them."""
