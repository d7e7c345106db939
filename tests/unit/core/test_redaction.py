import pytest

from tidegate.core.redaction import is_secret, redacted, redacted_document


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:wo@rd@bucket/x?a=b", "s3://bucket/x?a=b"),
        ("postgresql://user:pa/ss@host/db", "postgresql://host/db"),
        ("a://u:p@h1:9092,b://u:p@h2", "a://h1:9092,b://h2"),
        ("amqp://u:p@h1,u:p@h2/v", "amqp://h2/v"),
        ("abfss://box@host/x?sig=abc&se=2", "abfss://box@host/x?sig=******&se=2"),
        ("host=h password=word user=x", "host=h password=****** user=x"),
        ('Login user="a" password="w d";', 'Login user="a" password=******;'),
        ("--sink = 'x://h/?password=w'", "--sink = 'x://h/?password=******'"),
        ("{'password': 'x', 'a': 'b'}", "{'password': '******', 'a': 'b'}"),
        ("SharedAccessKey=abc==;x=1", "SharedAccessKey=******;x=1"),
        ("sent Bearer abcdefgh12", "sent Bearer ******"),
    ],
)
def test_secrets_in_a_text_are_hidden(text, shown):
    assert redacted(text) == shown
    assert redacted_document({"a": [text]}) == {"a": [shown]}


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:4021/jobs?mail=a@b.c",
        "abfss://container@account.dfs.core.windows.net/dir",
        "s3://bucket/day=1/b@c",
        "send it as Authorization: Bearer <token>",
        "the token is missing",
        "/plain/path@2",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redacted(text) == text


@pytest.mark.parametrize(
    "key",
    [
        "db.dsn",
        "sasl.jaas.config",
        "ssl.key.passphrase",
        "fs.azure.sas.fixed",
        "AWS_ACCESS_KEY_ID",
        "fs.azure.account.key.box",
        "apiKey",
        "basic.auth",
        "spark.authenticate.secret",
    ],
)
def test_keys_of_secrets_are_known(key):
    assert is_secret(key)


@pytest.mark.parametrize("key", ["spark.authenticate", "tidegate.step.max-records", "monkey.sash"])
def test_other_keys_are_no_secrets(key):
    assert not is_secret(key)
