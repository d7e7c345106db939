import pytest

from tidegate.connectors.files.encodings import Encoder
from tidegate.connectors.files.formats import TextLineFormat
from tidegate.connectors.socket import SocketSource
from tidegate.core.errors import ConfigError

LINES = [
    TextLineFormat,
    Encoder.simple_string_encoder,
    lambda charset: SocketSource("host", 1, charset=charset),
]


@pytest.mark.parametrize("of_lines", LINES)
def test_a_charset_whose_lines_do_not_end_with_byte_10_is_refused(of_lines):
    of_lines("latin-1")
    for charset in ("UTF-16", "utf-16-le", "utf-8-sig"):
        with pytest.raises(ConfigError, match="must end with byte 10: convert them to UTF-8"):
            of_lines(charset)


@pytest.mark.parametrize("of_lines", LINES)
@pytest.mark.parametrize("charset", ["klingon", "hex"])
def test_a_charset_that_python_does_not_know_is_refused(of_lines, charset):
    with pytest.raises(ConfigError, match="a charset that Python knows"):
        of_lines(charset)
