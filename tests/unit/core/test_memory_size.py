import pytest

from tidegate.core.memory_size import MemorySize


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (10, 10),
        ("10", 10),
        ("64 kb", 64 << 10),
        ("512m", 512 << 20),
        ("1 GB", 1 << 30),
        ("1.5k", 1536),
    ],
)
def test_a_memory_size_is_a_number_with_a_unit_that_counts_by_1024(written, size):
    assert MemorySize.parse(written).get_bytes() == size


@pytest.mark.parametrize("written", ["", "much", "5 xb", True, None])
def test_what_is_no_memory_size_is_answered_with_examples(written):
    with pytest.raises(ValueError, match="like '64 kb', '512m' or '1 gb'"):
        MemorySize.parse(written)


def test_memory_sizes_are_ordered_and_print_in_the_largest_whole_unit():
    assert MemorySize.of_mebi_bytes(1) < MemorySize.parse("1 gb")
    assert str(MemorySize(1 << 30)) == "1 gb"
    assert str(MemorySize(1000)) == "1000 bytes"
    assert MemorySize.parse("3 gb").get_mebi_bytes() == 3072
