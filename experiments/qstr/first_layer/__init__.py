"""What the first layer of a feedforward network spans."""
