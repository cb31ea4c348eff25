"""Files of client properties, as Java reads them; nothing of them is printed."""

from pathlib import Path

import pytest

from sparklog.pipeline.brokers.client_properties import ClientProperties
from sparklog.storage_core.errors import InvalidConfigError

_FILE = r"""# comment
! another one

security.protocol=SASL_PLAINTEXT
sasl.mechanism : PLAIN
sasl.jaas.config=org.example.Login required \
    username="me" \
    password="a=b\\c\u0021";
  group.id  x
bootstrap.servers=elsewhere:1
"""


def test_properties_when_a_file_is_given_then_read_as_java_does(tmp_path: Path) -> None:
    """Separators, comments, continued lines and escapes; the address is the option's."""
    file = tmp_path / "client.properties"
    file.write_text(_FILE)

    found = ClientProperties.read("here:9092", file)

    assert found.values == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": r'org.example.Login required username="me" password="a=b\c!";',
        "group.id": "x",
    }
    assert found.of_admin()["bootstrap.servers"] == found.of_source()["kafka.bootstrap.servers"] == "here:9092"
    assert "kafka.group.id" not in found.of_source()
    assert "password" not in repr(found)


def test_properties_when_a_line_is_none_then_its_number_is_named_and_not_its_text(tmp_path: Path) -> None:
    """It may be a secret."""
    file = tmp_path / "client.properties"
    file.write_text("a=b\n\nsecret\n")

    with pytest.raises(InvalidConfigError, match=r"file=.*client.properties line=3$") as refused:
        ClientProperties.read("here:9092", file)
    assert "secret" not in str(refused.value)


def test_properties_when_bytes_are_not_ascii_then_each_is_a_letter_as_java_has_it(tmp_path: Path) -> None:
    """ISO 8859-1, and lines end nowhere but at CR and LF: a password must arrive as Kafka's tools send it."""
    file = tmp_path / "client.properties"
    file.write_bytes(b"a=p\xe4\r\nb=\xc3\xa4\rc=x\x85y\x0cz\x0b\nd=\xa0e\n")

    assert ClientProperties.read("here:9092", file).values == {
        "a": "p\u00e4",
        "b": "\u00c3\u00a4",
        "c": "x\u0085y\x0cz\x0b",
        "d": "\u00a0e",
    }


def test_properties_when_a_text_has_their_secrets_then_these_are_left_out() -> None:
    """A consumer's error may quote a value; what is no secret stays readable."""
    login = 'org.example.PlainLoginModule required username="node" password="Geh31mn15";'
    values = {"sasl.jaas.config": login, "ssl.key.password": "s3cret", "sasl.mechanism": "PLAIN"}
    properties = ClientProperties(bootstrap_server="host:1", values=values)

    assert properties.without_secrets(f"wrong: {login}") == "wrong: ***"
    assert properties.without_secrets("PLAIN by node with Geh31mn15, s3cret") == "PLAIN by *** with ***, ***"


@pytest.mark.parametrize(
    ("name", "value", "is_hidden"),
    [
        ("sasl.oauthbearer.assertion.private.key.passphrase", "abc", True),
        ("basic.auth.user.info", "me:hidden", True),
        ("org.example.interceptor.key", "0a1b2c", True),
        ("ssl.truststore.location", "/etc/trust.jks", False),
        ("security.protocol", "SASL_SSL", False),
        ("sasl.kerberos.service.name", "kafka", False),
        ("request.timeout.ms", "20000", False),
        ("enable.idempotence", "true", False),
        ("org.example.level", "all", False),
    ],
)
def test_properties_when_a_text_has_a_value_then_only_what_is_known_to_be_no_secret_stays(
    name: str, value: str, is_hidden: bool
) -> None:
    """Properties of other libraries' classes may have secrets under any name."""
    properties = ClientProperties(bootstrap_server="host:1", values={name: value})

    assert (properties.without_secrets(f"wrong: {value}") == "wrong: ***") == is_hidden
