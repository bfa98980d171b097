"""Programs that do the same work without dsforge, written as their users would write them."""
