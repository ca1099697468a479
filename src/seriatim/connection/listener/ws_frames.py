"""WebSocket frames as bytes, for the two kinds that make up nearly all traffic: whole texts, masked in, plain out.

Pure: no sockets, no state but a cache of headers. The codec of `websockets` reads every other frame and every fault.
See RFC 6455 section 5.2 for the layout of a frame.
"""

from collections.abc import Sequence
from itertools import chain

from websockets.frames import Opcode

try:
    from websockets.speedups import apply_mask
except ImportError:  # a machine without a compiled wheel
    from websockets.utils import apply_mask

WHOLE_TEXT = 0x80 | Opcode.TEXT  # first byte: FIN, and no bit of an extension

# First bytes of all frames that may come: FIN or not with each opcode; control frames are never fragmented.
_FIRST_BYTES = (0x81, 0x8A, 0x89, 0x88, 0x01, 0x00, 0x80, 0x02, 0x82)

HEADERS_KEPT_MAX = 4096

# --- from the client --------------------------------------------------------------------------------------------------


def single_text(data: bytes) -> bytes | None:
    """The unmasked payload, if `data` is one whole masked text frame below 64 KiB and nothing else; otherwise None."""
    if len(data) < 8 or data[0] != WHOLE_TEXT:
        return None
    second = data[1]
    mask, size = (2, second - 0x7A) if second < 0xFE else (4, 8 + (data[2] << 8 | data[3]))
    if size != len(data) or second == 0xFF:
        return None
    return apply_mask(data[mask + 4 :], data[mask : mask + 4])


def frame_size(data: bytes, at: int) -> int | None:
    """The size of the frame that begins at `at`, or how many of its bytes are needed to know it.

    None: only the codec may judge it. It is not masked, has 64 KiB or more, or is no frame that a client may send.
    """
    available = len(data) - at
    if available < 2:
        return 2
    second = data[at + 1]
    if second < 0x80 or second == 0xFF or data[at] not in _FIRST_BYTES:
        return None
    if second < 0xFE:
        return second - 0x7A  # two bytes, the mask, and a payload of as many bytes as the lower seven bits say
    return 4 if available < 4 else 8 + (data[at + 2] << 8 | data[at + 3])


def payload(frame: bytes) -> bytes:
    """The unmasked payload of a frame whose size `frame_size` has given."""
    mask = 2 if frame[1] < 0xFE else 4
    return apply_mask(frame[mask + 4 :], frame[mask : mask + 4])


# --- to the client ----------------------------------------------------------------------------------------------------


def encode_texts(texts: Sequence[bytes]) -> bytes:
    """Each text as one whole frame, in order."""
    return b"".join(chain.from_iterable(zip(map(_header, map(len, texts)), texts, strict=True)))


class _HeaderCache(dict[int, bytes]):
    """Headers of unmasked whole texts by their length. Lengths repeat, and one push goes to many sockets."""

    def __missing__(self, length: int) -> bytes:
        if length < 126:
            header = bytes((WHOLE_TEXT, length))
        elif length < 65_536:
            header = b"\x81\x7e" + length.to_bytes(2, "big")
        else:
            header = b"\x81\x7f" + length.to_bytes(8, "big")
        if len(self) < HEADERS_KEPT_MAX:
            self[length] = header
        return header


_header = _HeaderCache().__getitem__
