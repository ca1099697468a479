"""The key folder: made once, private, refused when it is not, reread and rotated while everything goes on."""

import os
import threading
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from seriatim.engines.keys.key_folder import CODE_KEY, CURSOR_KEY, PEPPER, KeyFolder, KeyFolderError
from seriatim.engines.keys.secrets import KeySecrets
from seriatim.engines.keys.tokens import Rs256Signer
from tests.support.manual_clock import ManualClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "keys"


def test_the_first_start_makes_everything_private_and_says_what_it_made(path: Path) -> None:
    folder = made(path)
    assert sorted(each.name for each in folder.created) == ["20260130T120000.pem", CURSOR_KEY, CODE_KEY, PEPPER]
    assert sorted(folder.created) == sorted(path.iterdir())
    assert path.stat().st_mode & 0o777 == 0o700
    assert [each.stat().st_mode & 0o777 for each in folder.created] == [0o600] * 4
    assert folder.signing.kid == "20260130T120000"
    assert folder.signing.private.key_size == 2048
    assert len({folder.secret(name) for name in (PEPPER, CODE_KEY, CURSOR_KEY)}) == 3


def test_the_next_start_makes_nothing_and_finds_the_same_keys(path: Path) -> None:
    first = made(path)
    second = KeyFolder.open(path, create=True, clock=ManualClock())
    assert second.created == []
    assert second.signing.private.private_numbers() == first.signing.private.private_numbers()
    assert second.secret(PEPPER) == first.secret(PEPPER)


def test_a_first_start_that_was_cut_short_is_completed_and_what_was_there_is_kept(path: Path) -> None:
    first = made(path)
    (path / CURSOR_KEY).unlink()
    (path / "otp.key.new").write_text("half a k")
    second = KeyFolder.open(path, create=True, clock=ManualClock())
    assert second.created == [path / CURSOR_KEY]
    assert second.secret(CODE_KEY) == first.secret(CODE_KEY)


def test_two_first_starts_at_once_agree_on_all_keys(path: Path) -> None:
    folders: list[KeyFolder] = []
    starts = [threading.Thread(target=lambda: folders.append(made(path))) for _ in range(4)]
    for each in starts:
        each.start()
    for each in starts:
        each.join()
    assert sum(len(each.created) for each in folders) == 4
    assert len({each.signing.kid for each in folders}) == 1
    assert len({each.secret(PEPPER) for each in folders}) == 1


def test_without_create_nothing_is_made(path: Path) -> None:
    assert "there is no" in refusal(path)
    assert not path.exists()
    path.mkdir(parents=True)
    assert "holds no key" in refusal(path)
    assert list(path.iterdir()) == []


def test_a_public_key_alone_verifies_but_does_not_sign(path: Path) -> None:
    path.mkdir(parents=True)
    write_public(path / "2026.pub.pem", rsa_key())
    folder = opened(path)
    assert folder.public("2026") is not None
    with pytest.raises(KeyFolderError, match="not sign"):
        Rs256Signer(folder)
    with pytest.raises(KeyFolderError, match=r"otp\.pepper is missing"):
        KeySecrets(folder)


def test_the_greatest_kid_signs_whatever_the_files_dates_say(path: Path) -> None:
    made(path)
    write_private(path / "20250101T000000.pem", rsa_key())
    os.utime(path / "20250101T000000.pem", (4_000_000_000, 4_000_000_000))
    folder = opened(path)
    assert folder.signing.kid == "20260130T120000"
    assert folder.kids == ("20250101T000000", "20260130T120000")


def test_a_rotated_key_signs_at_once_and_the_old_ones_go_on_verifying(path: Path) -> None:
    clock = ManualClock()
    folder = KeyFolder.open(path, create=True, clock=clock)
    clock.advance(90 * 86_400)
    kid = folder.rotate()
    assert kid == f"{datetime.fromtimestamp(clock.now_s(), UTC):%Y%m%dT%H%M%S}"
    assert folder.signing.kid == kid
    assert folder.kids == ("20260130T120000", kid)
    assert (path / f"{kid}.pem").stat().st_mode & 0o777 == 0o600
    assert opened(path).signing.kid == kid


def test_a_rotated_key_signs_even_if_the_clock_was_set_back_or_people_chose_other_names(path: Path) -> None:
    folder = made(path)
    write_private(path / "winter.pem", rsa_key())
    first, second = folder.rotate(), folder.rotate()
    assert folder.signing.kid == second
    assert "winter" < first < second


def test_a_key_name_that_leaves_no_room_for_a_greater_one_has_to_be_renamed(path: Path) -> None:
    folder = made(path)
    write_private(path / f"{'x' * 64}.pem", rsa_key())
    with pytest.raises(KeyFolderError, match="rename"):
        folder.rotate()


def test_a_reload_finds_new_keys_and_loses_deleted_ones(path: Path) -> None:
    folder = made(path)
    write_public(path / "other.pub.pem", rsa_key())
    assert folder.public("other") is None
    folder.reload()
    assert folder.public("other") is not None
    (path / "other.pub.pem").unlink()
    folder.reload()
    assert folder.public("other") is None


def test_a_reload_notices_a_key_that_was_replaced_under_its_name(path: Path) -> None:
    folder = made(path)
    write_private(path / "20260130T120000.pem", rsa_key())
    folder.reload()
    assert folder.signing.private.private_numbers() == rsa_key().private_numbers()


def test_a_reload_that_fails_keeps_the_keys_of_before(path: Path) -> None:
    folder = made(path)
    write(path / "new.pem", b"half a key")
    with pytest.raises(KeyFolderError, match="damaged"):
        folder.reload()
    assert folder.signing.kid == "20260130T120000"
    for each in list(path.iterdir()):
        each.unlink()
    with pytest.raises(KeyFolderError, match="put the keys back"):
        folder.reload()
    assert folder.kids == ("20260130T120000",)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644, 0o666])
@pytest.mark.parametrize("name", ["20260130T120000.pem", PEPPER])
def test_a_secret_that_others_can_read_or_change_is_refused(path: Path, name: str, mode: int) -> None:
    made(path)
    (path / name).chmod(mode)
    assert f"chmod 600 {path / name}" in refusal(path)


def test_a_secret_may_be_read_by_a_group_as_those_mounted_into_containers_are(path: Path) -> None:
    made(path)
    (path / PEPPER).chmod(0o440)
    opened(path)


def test_a_public_key_may_be_read_by_all_and_changed_by_its_owner_only(path: Path) -> None:
    path.mkdir(parents=True)
    write_public(path / "a.pub.pem", rsa_key())
    (path / "a.pub.pem").chmod(0o644)
    opened(path)
    (path / "a.pub.pem").chmod(0o646)
    assert "changed by others" in refusal(path)


def test_a_folder_that_every_user_can_put_keys_into_is_refused(path: Path) -> None:
    made(path)
    path.chmod(0o777)
    assert f"chmod 700 {path}" in refusal(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_key_that_belongs_to_another_user_is_refused(path: Path) -> None:
    made(path)
    os.chown(path / "20260130T120000.pem", 12345, -1)
    assert "belongs to another user" in refusal(path)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.pem", b"", "damaged, encrypted or no PEM"),
        ("a.pem", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "damaged, encrypted or no PEM"),
        ("a.pub.pem", b"not a key", "damaged, encrypted or no PEM"),
        ("a b.pem", b"", "letters, digits"),
        (".pem", b"", "letters, digits"),
        ("a.b.pub.pem", b"", "letters, digits"),
        (PEPPER, b"", "hexadecimal"),
        (PEPPER, b"secret", "hexadecimal"),
        (CODE_KEY, b"00" * 16, "hexadecimal"),
        (CURSOR_KEY, b"00" * 33, "hexadecimal"),
    ],
)
def test_what_is_no_key_is_refused_by_name_and_not_quoted(path: Path, name: str, text: bytes, said: str) -> None:
    made(path)
    write(path / name, text)
    message = refusal(path)
    assert said in message
    assert str(path / name) in message
    assert "secret" not in message.replace(str(path), "")


def test_weak_foreign_and_encrypted_keys_are_refused(path: Path) -> None:
    made(path)
    write_private(path / "a.pem", rsa_key(1024))
    assert "has 1024 bits" in refusal(path)
    write_public(path / "a.pem", rsa_key())
    assert "no PEM key" in refusal(path)
    write_private(path / "a.pem", rsa_key(), BestAvailableEncryption(b"password"))
    assert "encrypted" in refusal(path)
    curve = ec.generate_private_key(ec.SECP256R1())
    write(path / "a.pem", curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert "not an RSA key" in refusal(path)
    (path / "a.pem").unlink()
    write_public(path / "a.pub.pem", rsa_key(1024))
    assert "has 1024 bits" in refusal(path)


def test_a_public_key_that_is_not_that_of_its_private_one_is_refused(path: Path) -> None:
    folder = made(path)
    write_public(path / "20260130T120000.pub.pem", folder.signing.private)
    opened(path)
    write_public(path / "20260130T120000.pub.pem", rsa_key())
    assert "two different keys" in refusal(path)


def test_folders_in_place_of_keys_and_files_in_place_of_folders_are_refused(path: Path) -> None:
    made(path)
    (path / "a.pem").mkdir()
    assert "is not a file" in refusal(path)
    assert "name a folder" in refusal(path / PEPPER)


def test_other_files_are_let_be(path: Path) -> None:
    made(path)
    write(path / "README", b"Do not share.")
    (path / "README").chmod(0o644)
    assert opened(path).kids == ("20260130T120000",)


# --- making ----------------------------------------------------------------------------------------------------------


def made(path: Path) -> KeyFolder:
    return KeyFolder.open(path, create=True, clock=ManualClock())


def opened(path: Path) -> KeyFolder:
    return KeyFolder.open(path, create=False, clock=ManualClock())


def refusal(path: Path) -> str:
    with pytest.raises(KeyFolderError) as refused:
        opened(path)
    return str(refused.value)


@cache
def rsa_key(bits: int = 2048) -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=bits)


def write_private(path: Path, key: RSAPrivateKey, encryption: KeySerializationEncryption | None = None) -> None:
    write(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption()))


def write_public(path: Path, key: RSAPrivateKey) -> None:
    write(path, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def write(path: Path, text: bytes) -> None:
    """As a new file, private as a careful operator makes it."""
    path.unlink(missing_ok=True)
    path.write_bytes(text)
    path.chmod(0o600)
