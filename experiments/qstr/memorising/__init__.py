"""How much a recurrent network has to remember."""
