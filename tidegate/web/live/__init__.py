"""What changes while a page is open: rates, charts, and the stream that carries them."""
