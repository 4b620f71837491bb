"""Tests of files that users name, by any writer."""

from __future__ import annotations

import gzip
import os
import socket
import sys
import threading
from pathlib import Path
from runpy import run_path

import pytest

from cudal1.errors import ConfigError, SuiteError
from cudal1.files import text_file
from cudal1.files.text_file import naming_utf8, open_named, read_python, read_text, read_yaml

SAYS = "x = 'Größe'\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "named.py"


@pytest.mark.parametrize(
    "data",
    [
        SAYS.encode(),
        SAYS.encode("utf-8-sig"),
        b"# coding: latin-1\n" + SAYS.encode("latin-1"),
        b"#!/usr/bin/python\r\n# vim: set fileencoding=cp1252 :\r\n" + SAYS.encode("cp1252"),
        b"\f\n# -*- coding: iso_8859-1-unix -*-\n" + SAYS.encode("latin-1"),
        b"# coding=mac-roman\r" + SAYS.encode("mac-roman").replace(b"\n", b"\r"),
        b"# coding: gb18030\n" + SAYS.encode("gb18030"),
        b"# coding: utf-8-unix\n" + SAYS.encode(),
        b"\xef\xbb\xbf# coding: UTF_8\n" + SAYS.encode(),
        b"import os\n\n# coding: latin-1\n" + SAYS.encode(),
        b"y = '''\n# coding: latin-1'''\n" + SAYS.encode(),
        SAYS.replace("\n", "\r\n").encode(),
        b"y = 1\r" + SAYS.encode(),
    ],
)
def test_source_is_read_as_python_reads_it_and_stays_the_same_program(
    data: bytes, file: Path
) -> None:
    file.write_bytes(data)
    text = read_python(file)
    assert run_path(str(file))["x"] == "Größe"
    file.write_text(text, encoding="utf-8")
    assert run_path(str(file))["x"] == "Größe"
    assert read_python(file) == text
    assert "\r" not in text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (SAYS.encode("latin-1"), "not UTF-8 text (byte 7); save it as UTF-8"),
        (SAYS.encode("utf-16"), "but UTF-16; save it as UTF-8"),
        (SAYS.encode("utf-32"), "but UTF-32; save it as UTF-8"),
        (SAYS.encode("utf-16-le"), "save it as UTF-8"),
        (b"# coding: ascii\n" + SAYS.encode(), "not ascii text (byte 23), as it says; save it as"),
        (b"# coding: rot13\n", "names the encoding rot13, which is none; save it as UTF-8"),
        (b"# coding: base64\n", "names the encoding base64, which is none"),
        (b"# coding: nonsense\n", "names the encoding nonsense, which is none"),
        (b"# coding: utf-16\n", "text is not what it shows; save it as UTF-8"),
        (b"# coding: cp037\n", "text is not what it shows"),
        (b"# coding: utf-7\n", "text is not what it shows"),
        (b"# coding: unicode_escape\n", "text is not what it shows"),
        (b"# coding: raw-unicode-escape\n", "text is not what it shows"),
        (b"# coding: iso2022_jp\n", "text is not what it shows"),
        (b"# coding: hz\n", "text is not what it shows"),
        (b"# coding: shift_jis_2004\n", "text is not what it shows"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "begins as UTF-8 and names the encoding latin-1"),
        (b"x = 1\0\n", "null byte"),
        (gzip.compress(b"x", mtime=0), "but gzip; unpack it first"),
    ],
)
def test_other_text_is_refused_in_one_line_with_a_remedy(
    data: bytes, said: str, file: Path
) -> None:
    file.write_bytes(data)
    with pytest.raises(SuiteError) as raised:
        read_python(file, raising=SuiteError)
    assert str(raised.value).startswith(f"{file}: ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("codec", ["unicode_escape", "raw_unicode_escape"])
def test_code_that_a_codec_hides_in_a_comment_is_shown(codec: str, file: Path) -> None:
    file.write_bytes(b"# coding: " + codec.encode() + b"\n# rows \\u000ax = 'Gr\\xf6\\u00dfe'\n")
    text = read_python(file, any_codec=True)
    assert "\nx = 'Gr" in text
    assert text.startswith("# coding: utf-8\n")


def test_half_a_character_is_not_text(file: Path) -> None:
    file.write_bytes(b"# coding: unicode_escape\nx = '\\ud800'\n")
    with pytest.raises(ConfigError, match="not unicode_escape text"):
        read_python(file, any_codec=True)


def test_a_text_that_names_an_encoding_names_its_stored_encoding() -> None:
    assert naming_utf8("\ufeff#!x\n# coding: raw_unicode_escape \\u000a\ny\n") == (
        "#!x\n# coding: utf-8 \\u000a\ny\n"
    )
    later = "import os\n# coding: latin-1\n"
    assert naming_utf8(later) == later


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(SAYS,))
    writer.start()
    assert read_python(pipe) == SAYS
    writer.join()


def test_a_descriptor_of_a_socket_is_read() -> None:
    here, there = socket.socketpair()
    here.sendall(SAYS.encode())
    here.close()
    for folder in ("/dev/fd", "/proc/self/fd"):
        assert read_text(Path(f"{folder}/{there.fileno()}")) in (SAYS, "")
    there.close()


@pytest.mark.parametrize("kind", ["folder", "socket", "device", "absent", "loop", "null"])
def test_a_path_that_is_not_a_file_is_named_in_one_line(
    kind: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    path = Path("named.py")
    match kind:
        case "folder":
            path.mkdir()
        case "socket":
            socket.socket(socket.AF_UNIX).bind(str(path))
        case "device":
            path = Path("/dev/zero")
        case "loop":
            path.symlink_to(path)
        case "null":
            path = Path("a\0b")
        case _:
            pass
    with pytest.raises(ConfigError, match=r"cannot be read \(") as raised:
        read_text(path)
    assert "\n" not in str(raised.value)


def test_a_file_longer_than_any_source_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_file, "MAX_BYTES", 1 << 20)
    file.write_bytes(b"#" * (1 << 20))
    assert len(read_text(file)) == 1 << 20
    file.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="longer than 1 MiB"):
        read_text(file)


def test_a_file_name_of_any_bytes_is_opened(tmp_path: Path) -> None:
    path = tmp_path / b"na\nme\xff".decode(sys.getfilesystemencoding(), "surrogateescape")
    path.write_text(SAYS, encoding="utf-8")
    with open_named(path) as file:
        assert file.read() == SAYS.encode()


@pytest.mark.parametrize(
    "content",
    [
        "a: [",
        "a: 2026-13-01",
        "!!int ''",
        "!!bool x",
        "!!timestamp x",
        "[" * 5000,
        "a: \x01",
        "? {a: 1}\n: 2",
        "a: " + "9" * 5000,
    ],
)
def test_unreadable_yaml_gives_one_line(content: str, file: Path) -> None:
    file.write_text(content)
    with pytest.raises(ConfigError, match="cannot be read: not valid YAML") as raised:
        read_yaml(file)
    assert "\n" not in str(raised.value)


def test_yaml_may_begin_with_a_byte_order_mark(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: [2]\r\n")
    assert read_yaml(file) == {"a": 1, "b": [2]}
