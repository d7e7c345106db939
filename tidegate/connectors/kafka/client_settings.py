"""Translates settings of Kafka clients between Java, librdkafka and kafka-python."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any

from tidegate.core.errors import ConfigError

_JAVA_ONLY = frozenset(
    {
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
        "partitioner.class",
        "max.block.ms",
        "buffer.memory",
    }
)
"""Java settings without a counterpart: schemas and limits of librdkafka replace them."""
_RENAMED = {"max.request.size": "message.max.bytes"}
_CREDENTIAL = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")


def librdkafka_settings(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The confluent-kafka settings for properties that may be written for a Java client."""
    settings: dict[str, Any] = {}
    for key, value in properties.items():
        if key in _JAVA_ONLY:
            continue
        if key == "sasl.jaas.config":
            for name, text in _CREDENTIAL.findall(value):
                settings[f"sasl.{name}"] = _ESCAPED.sub(r"\1", text)
            continue
        settings[_RENAMED.get(key, key)] = value
    return settings


def connection_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The connection and authentication settings for `kafka-python`."""
    found: dict[str, Any] = {
        "bootstrap_servers": str(settings["bootstrap.servers"]).split(","),
        "client_id": str(settings.get("client.id", "tidegate")),
        "security_protocol": str(settings.get("security.protocol", "PLAINTEXT")).upper(),
    }
    if found["security_protocol"].startswith("SASL"):
        mechanism = str(settings.get("sasl.mechanism") or settings.get("sasl.mechanisms", "GSSAPI"))
        if mechanism not in _MECHANISMS:
            raise ConfigError(
                "sasl.mechanism",
                mechanism,
                f"transactions can be committed with {', '.join(_MECHANISMS)}: use one of them, "
                "or a delivery guarantee other than exactly once",
            )
        found["sasl_mechanism"] = mechanism
        found["sasl_plain_username"] = settings.get("sasl.username")
        found["sasl_plain_password"] = settings.get("sasl.password")
        found["sasl_kerberos_service_name"] = settings.get("sasl.kerberos.service.name", "kafka")
    if found["security_protocol"].endswith("SSL"):
        found["ssl_context"] = _ssl_context(settings)
        found["ssl_check_hostname"] = found["ssl_context"].check_hostname
    return found


def _ssl_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem")
        )
        certificate = settings.get("ssl.certificate.location")
        if certificate is not None:
            context.load_cert_chain(
                certificate, settings.get("ssl.key.location"), settings.get("ssl.key.password")
            )
    except OSError as error:
        raise ConfigError("ssl", str(error), "give files that every slot can read") from None
    if settings.get("ssl.endpoint.identification.algorithm", "https") != "https":
        context.check_hostname = False
    if str(settings.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
