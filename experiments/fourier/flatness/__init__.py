"""How flat minima are: the studies, the construction, and the bounds that it gives."""
