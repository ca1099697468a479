"""The key folder: signing keys by id, and the secrets of the REST edge. Files that others can change are refused.

<kid>.pem       an RSA private key; the greatest kid signs, every one of them verifies
<kid>.pub.pem   a public key: all that a verifier needs
otp.pepper, otp.key, cursor.key   32 bytes each, as hexadecimal text
"""

import fcntl
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from seriatim.domain import limits
from seriatim.domain.ids import is_id
from seriatim.engines.shared.files import write_atomically
from seriatim.ports.clock import Clock

PEPPER, CODE_KEY, CURSOR_KEY = "otp.pepper", "otp.key", "cursor.key"
_SECRET_MODE = 0o600


class KeyFolderError(Exception):
    """Why keys cannot be used, and what to do about it. Names files, never their contents."""


class SigningKey(msgspec.Struct, frozen=True):
    kid: str
    private: RSAPrivateKey


class KeyFolder:
    """What the folder held when it was last read. `created` are the files that `open` created."""

    def __init__(self, path: Path, clock: Clock, created: Sequence[Path]) -> None:
        self.path = path
        self.created = created
        self._clock = clock
        self._contents = _read(path, {})

    @classmethod
    def open(cls, path: Path, *, create: bool, clock: Clock) -> "KeyFolder":
        """With `create`, the missing files of a REST process are created. Raises `KeyFolderError`."""
        with _as_key_folder_error(path):
            created = _create_missing(path, clock) if create else ()
            folder = cls(path, clock, created)
        if not folder._contents.public:
            raise KeyFolderError(f"the key folder {path} holds no key; put <name>.pem or <name>.pub.pem there")
        return folder

    @property
    def signing(self) -> SigningKey:
        """The newest key: that with the greatest kid. A name survives copies and backups; a file's date does not."""
        if self._contents.signing is None:
            raise KeyFolderError(
                f"the key folder {self.path} can verify tokens but not sign them; put the signing key <name>.pem there"
            )
        return self._contents.signing

    def public(self, kid: str) -> RSAPublicKey | None:
        return self._contents.public.get(kid)

    @property
    def kids(self) -> Sequence[str]:
        return tuple(self._contents.public)

    def secret(self, name: str) -> bytes:
        found = self._contents.secrets.get(name)
        if found is None:
            raise KeyFolderError(
                f"{self.path / name} is missing; copy it from the other REST processes, or let the server create it"
            )
        return found

    def optional_secret(self, name: str) -> bytes | None:
        return self._contents.secrets.get(name)

    def reload(self) -> None:
        """Reads changed files again. If that fails, it raises and keeps the keys that were read before."""
        with _as_key_folder_error(self.path):
            fresh = _read(self.path, self._contents.files)
        if not fresh.public:
            raise KeyFolderError(f"the key folder {self.path} holds no key any more; put the keys back")
        self._contents = fresh

    def rotate(self) -> str:
        """Creates a key that signs from now on, and returns its kid. The older ones still verify.

        Their files may be deleted by hand `KEY_OVERLAP_S` later.
        """
        with _as_key_folder_error(self.path), _locked(self.path):
            self.reload()
            kid = _next_kid(self.kids, self._clock)
            write_atomically(self.path / f"{kid}.pem", _new_pem(), mode=_SECRET_MODE)
            self.reload()
        return kid

    def stage(self, folder: Path) -> str:
        """Creates the next key in another folder, private and public part, and returns its kid: here nothing changes.

        So the public part can be on all machines before the private one signs anything.
        """
        with _as_key_folder_error(folder):
            self.reload()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            there = [each.name.removesuffix(".pem").removesuffix(".pub") for each in folder.glob("*.pem")]
            kid = _next_kid([*self.kids, *there], self._clock)
            private = _new_pem()
            write_atomically(folder / f"{kid}.pub.pem", _public_pem(private), mode=_SECRET_MODE)
            write_atomically(folder / f"{kid}.pem", private, mode=_SECRET_MODE)
        return kid


# --- creating keys --------------------------------------------------------------------------------------------------


def _create_missing(path: Path, clock: Clock) -> Sequence[Path]:
    """Two processes may start at once: the second finds the files of the first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    created: list[Path] = []
    with _locked(path):
        names = [each.name for each in path.iterdir()]
        if not any(name.endswith(".pem") and not name.endswith(".pub.pem") for name in names):
            kids = [name.removesuffix(".pub.pem") for name in names if name.endswith(".pub.pem")]
            created.append(path / f"{_next_kid(kids, clock)}.pem")
            write_atomically(created[-1], _new_pem(), mode=_SECRET_MODE)
        for name in (PEPPER, CODE_KEY, CURSOR_KEY):
            if name not in names:
                created.append(path / name)
                write_atomically(
                    created[-1], os.urandom(limits.SECRET_KEY_BYTES).hex().encode() + b"\n", mode=_SECRET_MODE
                )
    return created


def _next_kid(kids: Sequence[str], clock: Clock) -> str:
    """Greater than all others, whatever their names, and even if the clock was set back."""
    kid = f"{datetime.fromtimestamp(clock.now_ms() // 1000, UTC):%Y%m%dT%H%M%S}"
    newest = max(kids, default="")
    if kid <= newest:
        kid = f"{newest}-{kid}"
    if not is_id(kid):
        raise KeyFolderError(f"the key {newest} has too long a name to be followed by another; rename it")
    return kid


def _new_pem() -> bytes:
    key = generate_private_key(public_exponent=65537, key_size=limits.SIGNING_KEY_BITS)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _public_pem(private: bytes) -> bytes:
    public = load_pem_private_key(private, password=None).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """No other process creates keys in this folder meanwhile."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# --- reading keys ----------------------------------------------------------------------------------------------------

_Stamp = tuple[int, int, int]
_Parsed = RSAPrivateKey | RSAPublicKey | bytes


class _FolderContents(msgspec.Struct, frozen=True):
    signing: SigningKey | None
    public: Mapping[str, RSAPublicKey]
    secrets: Mapping[str, bytes]
    files: Mapping[str, tuple[_Stamp, _Parsed]]


def _read(path: Path, before: Mapping[str, tuple[_Stamp, _Parsed]]) -> _FolderContents:
    """A file that did not change is not parsed again: checking a private key takes tens of milliseconds."""
    _check_folder(path)
    files: dict[str, tuple[_Stamp, _Parsed]] = {}
    public: dict[str, RSAPublicKey] = {}
    private: dict[str, RSAPrivateKey] = {}
    secrets: dict[str, bytes] = {}
    for each in sorted(path.iterdir()):
        is_key = each.name.endswith(".pem")
        if not is_key and each.name not in (PEPPER, CODE_KEY, CURSOR_KEY):
            continue
        kid = _kid(each) if is_key else ""
        stamp = _check_file(each)
        stamped, parsed = before.get(each.name, (None, None))
        if parsed is None or stamped != stamp:
            parsed = _parse(each)
        files[each.name] = (stamp, parsed)
        if isinstance(parsed, bytes):
            secrets[each.name] = parsed
            continue
        if isinstance(parsed, RSAPrivateKey):
            private[kid] = parsed
            parsed = parsed.public_key()
        if public.setdefault(kid, parsed).public_numbers() != parsed.public_numbers():
            raise KeyFolderError(f"{kid}.pem and {kid}.pub.pem in {path} are two different keys; rename one of them")
    signing = SigningKey(max(private), private[max(private)]) if private else None
    return _FolderContents(signing, public, secrets, files)


def _check_folder(path: Path) -> None:
    mode = path.stat().st_mode
    if not stat.S_ISDIR(mode):
        raise KeyFolderError(f"{path} is a file; name a folder for the keys")
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise KeyFolderError(f"every user can put keys into {path}; run `chmod 700 {path}`")


def _kid(path: Path) -> str:
    kid = path.name.removesuffix(".pem").removesuffix(".pub")
    if not is_id(kid):
        raise KeyFolderError(f"{path} has a name that is no key id; use letters, digits, - and _, at most 64")
    return kid


def _check_file(path: Path) -> _Stamp:
    """Secret files may be read by a group, as secrets mounted into containers are, but not by others."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise KeyFolderError(f"{path} is not a file; remove it")
    allowed = 0o644 if path.name.endswith(".pub.pem") else 0o640
    if stat.S_IMODE(found.st_mode) & 0o077 & ~allowed:
        who = "changed" if path.name.endswith(".pub.pem") else "read or changed"
        raise KeyFolderError(f"{path} can be {who} by others; run `chmod 600 {path}`, and replace it if they could")
    if found.st_uid not in (0, os.geteuid()):
        raise KeyFolderError(f"{path} belongs to another user; take it over with `chown`, if you trust it")
    return found.st_mtime_ns, found.st_size, found.st_ino


def _parse(path: Path) -> _Parsed:
    text = path.read_bytes()
    if not path.name.endswith(".pem"):
        return _parse_secret(path, text)
    try:
        is_public = path.name.endswith(".pub.pem")
        key = load_pem_public_key(text) if is_public else load_pem_private_key(text, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyFolderError(f"{path} is damaged, encrypted or no PEM key; restore it or remove it") from None
    if not isinstance(key, RSAPrivateKey | RSAPublicKey):
        raise KeyFolderError(f"{path} is not an RSA key, and tokens are signed with RS256; replace it")
    if key.key_size < limits.SIGNING_KEY_BITS:
        raise KeyFolderError(
            f"{path} has {key.key_size} bits; replace it by a key of {limits.SIGNING_KEY_BITS} at least"
        )
    return key


def _parse_secret(path: Path, text: bytes) -> bytes:
    try:
        secret = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        secret = b""
    if len(secret) != limits.SECRET_KEY_BYTES:
        raise KeyFolderError(
            f"{path} must hold {limits.SECRET_KEY_BYTES} bytes as hexadecimal text; restore it, or remove it and let "
            "the server create one"
        )
    return secret


@contextmanager
def _as_key_folder_error(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise KeyFolderError(f"there is no {error.filename or path}; name the folder that holds the keys") from error
    except OSError as error:
        raise KeyFolderError(f"the key folder {path} cannot be used: {error}; see to its owner and rights") from error
