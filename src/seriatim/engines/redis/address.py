"""Where Redis is and how to sign in there, as one URL.

redis://[[user]:password@]host[:port][/database]                          one server
rediss://...                                                              the same over TLS
redis+sentinel://[[user]:password@]host[:port],host.../service[/database] the primary that the sentinels name
"""

import ssl
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

PORT, SENTINEL_PORT = 6379, 26379
_SCHEMES = {"redis": False, "rediss": True, "redis+sentinel": False, "rediss+sentinel": True}
_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")


class RedisLogin(msgspec.Struct, frozen=True):
    """Its text never shows the password."""

    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return "RedisLogin(anonymous)" if self.password is None else f"RedisLogin({self.username or 'default'})"


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """`service` is set when `hosts` are sentinels: the name they know the primary by."""

    hosts: tuple[tuple[str, int], ...]
    service: str | None = None
    database: int = 0
    login: RedisLogin = RedisLogin()
    sentinel_login: RedisLogin = RedisLogin()
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    @classmethod
    def parse(cls, url: str) -> "RedisAddress":
        """Raises ValueError that says what to change and never quotes the URL, which may hold a password."""
        scheme, colon, rest = url.partition("://")
        if not colon or scheme not in _SCHEMES:
            raise ValueError(f"a Redis URL begins with one of {', '.join(f'{each}://' for each in _SCHEMES)}")
        parts = urlsplit(f"//{rest}")
        sentinels, tls = "+" in scheme, _SCHEMES[scheme]
        login, _, hosts = parts.netloc.rpartition("@")
        service, database = _path(parts.path, sentinels=sentinels)
        options = _options(parts.query, (*(_TLS_OPTIONS if tls else ()), *(_SENTINEL_OPTIONS if sentinels else ())))
        return cls(
            hosts=_hosts(hosts, sentinels=sentinels),
            service=service,
            database=database,
            login=_login(login),
            sentinel_login=RedisLogin(options.get("sentinel_username"), options.get("sentinel_password")),
            tls=tls,
            ca_file=options.get("ssl_ca_certs"),
            certificate_file=options.get("ssl_certfile"),
            key_file=options.get("ssl_keyfile"),
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """Certificates and host names are always checked. Raises ValueError for files that cannot be used."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except OSError as error:
            raise ValueError(f"the certificates for Redis cannot be read: {error}") from error
        return context


def _path(path: str, *, sentinels: bool) -> tuple[str | None, int]:
    given = [unquote(each) for each in path.split("/") if each]
    service = given.pop(0) if sentinels and given else None
    if sentinels and service is None:
        raise ValueError("a Redis URL with sentinels names the service: redis+sentinel://host:26379/service")
    if len(given) > 1 or not all(each.isascii() and each.isdigit() for each in given):
        raise ValueError("the path of a Redis URL is the number of a database, such as /0")
    return service, int(given[0]) if given else 0


def _options(query: str, known: tuple[str, ...]) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := [name for name in options if name not in known]:
        raise ValueError(f"a Redis URL of this kind has no option {unknown[0]!r}; it has: {', '.join(known) or 'none'}")
    return options


def _hosts(text: str, *, sentinels: bool) -> tuple[tuple[str, int], ...]:
    names = text.split(",")
    if len(names) > 1 and not sentinels:
        raise ValueError("a Redis URL names one host; several are sentinels: redis+sentinel://")
    return tuple([_host(name, SENTINEL_PORT if sentinels else PORT) for name in names])


def _host(text: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        raise ValueError("a port in a Redis URL is not a number from 0 to 65535") from None
    if not parts.hostname:
        raise ValueError("a Redis URL names a host: redis://host:6379/0")
    return parts.hostname, default_port if port is None else port


def _login(text: str) -> RedisLogin:
    username, colon, password = text.partition(":")
    if not text:
        return RedisLogin()
    if not colon or not password:
        raise ValueError("a Redis URL with a user has a password too: redis://user:password@host")
    return RedisLogin(unquote(username) or None, unquote(password))
