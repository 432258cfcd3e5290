"""Programs that check the tree; `make lint` runs them."""
