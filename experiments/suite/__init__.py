"""Which mixer needs how many sequences for what? Tasks of tokens at its best rate."""
