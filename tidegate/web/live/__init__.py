"""Live data: rates, charts, and the stream that carries them."""
