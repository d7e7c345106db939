"""Authenticated lines between driver and slots, and what is shipped over them."""
