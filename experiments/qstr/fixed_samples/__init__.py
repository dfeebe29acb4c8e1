"""Training to the end on m prompts: the m from which on half of the trials succeed."""
