from tests.unit.driver.conftest import start, watch

__all__ = ["start", "watch"]
