"""The demo: real data through the real stack, verified by independent readers."""
