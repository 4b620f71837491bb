"""Text files that people name: read once, as Python reads them, or refused with a remedy.

A file may be a pipe, so no function reads it twice or asks for its length. A byte order mark is no
part of the text, and every line ends with a line feed. A source may name its encoding, as PEP 263
says. The returned text names UTF-8 instead, so that it is the same program wherever it is written.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from cudal1.errors import ConfigError, CudaL1Error

MAX_BYTES = 16 << 20
"""Maximum bytes of a source or of settings; no such file has more."""

PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh91AY": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"PAR1\x15": "Parquet",
}
"""First bytes of files that hold no text."""
WIDE = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Byte order marks of other encodings; the longer ones first, as some begin with a shorter one."""

COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII)
"""PEP 263: a comment that names the encoding, in one of the first two lines."""
BLANK = re.compile(r"^[ \t\f]*(?:#.*)?$")
NO_CHARACTER_SETS = re.compile(r"utf-?7|.*escape|idna|punycode|hz|iso2022.*|undefined")
"""Codecs under which text may mean something else than it shows."""
ASCII = bytes(range(128))
STANDARD = re.compile(r"/dev/(?:stdin|fd/(\d+))|/proc/self/fd/(\d+)")


def open_named(path: Path, *, raising: type[CudaL1Error] = ConfigError) -> BinaryIO:
    """Open a file, a pipe, or a stream of the process such as `/dev/stdin`, for reading.

    Raises:
        raising: it cannot be opened, or is a folder or a device.
    """
    own = STANDARD.fullmatch(str(path))
    try:
        # a duplicate, for sockets cannot be opened by name
        file = os.fdopen(os.dup(int(own[1] or own[2] or 0)), "rb") if own else path.open("rb")
    except (OSError, ValueError) as error:
        raise raising(f"{path}: cannot be read ({_why(error)})") from error
    mode = os.fstat(file.fileno()).st_mode
    if own is None and (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not file.isatty():
        file.close()
        raise raising(f"{path}: cannot be read (it is a device)")
    return file


def mode_of(path: Path) -> int:
    """Return the type and permissions of a file as `stat` has them; 0 on an error."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def read_bytes(path: Path, *, raising: type[CudaL1Error] = ConfigError) -> bytes:
    """Return the bytes of a file.

    Raises:
        raising: it cannot be read, or is longer than `MAX_BYTES`.
    """
    with open_named(path, raising=raising) as file:
        try:
            data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise raising(f"{path}: cannot be read ({_why(error)})") from error
    if len(data) > MAX_BYTES:
        raise raising(f"{path}: longer than {MAX_BYTES >> 20} MiB; give another file")
    return data


def read_text(path: Path, *, raising: type[CudaL1Error] = ConfigError) -> str:
    """Return the text of a file that is UTF-8.

    Raises:
        raising: it cannot be read, or is no UTF-8 text.
    """
    try:
        return decoded(read_bytes(path, raising=raising))
    except ValueError as error:
        raise raising(f"{path}: {error}") from error


def read_python(
    path: Path, *, raising: type[CudaL1Error] = ConfigError, any_codec: bool = False
) -> str:
    """Return the source in a file, as Python reads it.

    Args:
        path: the file.
        raising: the error that is raised.
        any_codec: whether codecs are used that are no character sets, such as `raw_unicode_escape`.
            The returned text shows what they hide.

    Raises:
        raising: it cannot be read, or Python could not either, or its encoding is refused.
    """
    try:
        return _python(read_bytes(path, raising=raising), any_codec=any_codec)
    except ValueError as error:
        raise raising(f"{path}: {error}") from error


def read_yaml(path: Path, *, raising: type[CudaL1Error] = ConfigError) -> Any:
    """Return the content of a YAML file.

    Raises:
        raising: it cannot be read, or is not YAML.
    """
    text = read_text(path, raising=raising)
    try:
        return yaml.safe_load(text)
    except RecursionError as error:
        raise raising(f"{path}: cannot be read: not valid YAML (nested too deeply)") from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        # beside its own errors PyYAML raises those of constructors, as for the date 2026-13-01
        said = " ".join(str(error).split())
        raise raising(f"{path}: cannot be read: not valid YAML ({said})") from error


def refuse_packed(data: bytes) -> None:
    """Refuse bytes that are certainly no UTF-8 text, by the first ones.

    Raises:
        ValueError: they are packed, or text of another encoding; the message has a remedy.
    """
    for mark, name in PACKED.items():
        if data.startswith(mark):
            raise ValueError(f"not UTF-8 text but {name}; unpack it first")
    for mark, name in WIDE.items():
        if data.startswith(mark):
            raise ValueError(f"not UTF-8 text (byte 0) but {name}; save it as UTF-8")


def decoded(data: bytes) -> str:
    """Return UTF-8 text without its byte order mark, with line feeds alone.

    Raises:
        ValueError: they are no such text; the message has a remedy.
    """
    refuse_packed(data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    return _lines_ended(text)


def _python(data: bytes, *, any_codec: bool) -> str:
    refuse_packed(data)
    named = _named_encoding(data)
    codec = "utf-8" if named is None else _codec(named, is_any=any_codec)
    if codec == "utf-8":
        text = decoded(data)
    elif data.startswith(codecs.BOM_UTF8):
        raise ValueError(f"begins as UTF-8 and names the encoding {named}; save it as UTF-8")
    else:
        try:
            text = _lines_ended(data.decode(codec))
            text.encode("utf-8")  # an escape of half a character is refused
        except UnicodeError as error:
            said = f"(byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""
            raise ValueError(f"not {named} text {said}, as it says; save it as UTF-8") from error
        text = naming_utf8(text)
    if "\0" in text:  # ast.parse raises no SyntaxError for it
        raise ValueError("not Python: it holds a null byte; save it as UTF-8 text")
    return text


def naming_utf8(text: str) -> str:
    """Return a decoded source as UTF-8 holds it.

    It has no byte order mark, and names UTF-8 in place of any other encoding.
    """
    text = text.removeprefix("\ufeff")
    lines = text.split("\n", 2)
    for number, line in enumerate(lines[:2]):
        if found := COOKIE.match(line):
            lines[number] = line[: found.start(1)] + "utf-8" + line[found.end(1) :]
            return "\n".join(lines)
        if not BLANK.match(line):
            break
    return text


def _named_encoding(data: bytes) -> str | None:
    head = data.removeprefix(codecs.BOM_UTF8)[:100_000].decode("latin-1")
    for line in _lines_ended(head).split("\n", 2)[:2]:
        if found := COOKIE.match(line):
            return found[1]
        if not BLANK.match(line):
            return None
    return None


def _codec(named: str, *, is_any: bool) -> str:
    """Return the codec that Python takes for a name.

    Raises:
        ValueError: there is none, or it is no character set that contains ASCII.
    """
    name = named.lower().replace("_", "-")
    if re.match(r"utf-8(-|$)", name):  # Emacs writes utf-8-unix
        return "utf-8"
    if re.match(r"(latin-1|iso-8859-1|iso-latin-1)(-|$)", name):
        return "iso8859-1"
    try:
        codec = codecs.lookup(named).name
        is_character_set = NO_CHARACTER_SETS.fullmatch(
            codec.replace("_", "-")
        ) is None and ASCII.decode(codec) == ASCII.decode("ascii")
    except UnicodeError:
        is_character_set, codec = False, named
    except LookupError as error:  # Python knows no codec of that name, or it makes no text
        raise ValueError(f"names the encoding {named}, which is none; save it as UTF-8") from error
    if not is_character_set and not is_any:
        raise ValueError(
            f"names the encoding {named}, under which text is not what it shows; save it as UTF-8"
        )
    return codec


def _lines_ended(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _why(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
