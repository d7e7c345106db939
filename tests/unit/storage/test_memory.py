import pytest

from tests.blob_store_contract import BlobStoreContract
from tests.memory_store import MemoryStore


class TestMemoryStore(BlobStoreContract):
    @pytest.fixture
    def store(self):
        return MemoryStore()
