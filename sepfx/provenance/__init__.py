"""What results come from: code of one's own, settings, machines, packages."""
