"""The width that a recurrent network needs."""
