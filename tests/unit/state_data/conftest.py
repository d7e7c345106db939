from tests.unit.runtime.conftest import start, watch

__all__ = ["start", "watch"]
