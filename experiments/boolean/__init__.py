"""Of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*."""
