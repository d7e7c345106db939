from tests.served_jobs import home, serve, served

__all__ = ["home", "serve", "served"]
