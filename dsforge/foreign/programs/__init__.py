"""What people tell external programs, read back through the same table that tells it to them."""
