"""Tests that stripping removes remarks, keeps code, and handles every source."""

from __future__ import annotations

import ast
import re
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1.files.python_file import MAX_PARSED
from cudal1.llm.reviewer.stripping import MAX_SHOWN, NOT_STRIPPED, meaning, stripped
from tests.harness.corpus import Case, cases
from tests.harness.screen.test_screen import HOSTILE


def gone(count: int) -> str:
    """Return the mark that replaces a bare string."""
    return f'"[{count} bytes of a string removed]"'


REMOVED = {
    "a comment": ("x = 1  # one\n", "x = 1\n"),
    "a line of comment": ("x = 1\n# one\ny = 2\n", "x = 1\ny = 2\n"),
    "a comment in a block": ("if x:\n    # one\n    y = 2\n", "if x:\n    y = 2\n"),
    "a comment in brackets": ("x = [\n    1,  # one\n    # two\n]\n", "x = [\n    1,\n]\n"),
    "a comment in a string's parts": ("x = ('a'  # b\n     'c')\n", "x = ('a'\n     'c')\n"),
    "a comment after a continued line": ("x = 1 \\\n# c\ny = 2\n", "x = 1 \\\n\ny = 2\n"),
    "a comment without an end of line": ("x = 1 # one", "x = 1\n"),
    "a comment after letters": ("é = 'ü'  # ä\n", "é = 'ü'\n"),
    "a docstring": ('"""Doc."""\nx = 1\n', f"{gone(10)}\nx = 1\n"),
    "a function's docstring": (
        'def f():\n    """Doc.\n\n    #"""\n    x\n',
        f"def f():\n    {gone(17)}\n    x\n",
    ),
    "nothing but a docstring": ("class A:\n    'doc'\n", f"class A:\n    {gone(5)}\n"),
    "a string in brackets": (
        "x = 1\n(\n    'a'  # b\n    'c'\n)\ny = 2\n",
        f"x = 1\n{gone(24)}\ny = 2\n",
    ),
    "a tuple of strings": ("x = 1\n'a', ['b']\ny = 2\n", f"x = 1\n{gone(10)}\ny = 2\n"),
    "bytes": ("x = 1\nb'a'\n", f"x = 1\n{gone(4)}\n"),
    "a string between statements": ("x = 1; 'a'; y = 2\n", f"x = 1; {gone(3)}; y = 2\n"),
    "a string in one line": ("if x: 'a'\n", f"if x: {gone(3)}\n"),
    "blank lines": ("x = 1\n\n \n\n\ny = 2\n\n\n", "x = 1\n\ny = 2\n"),
    "other line ends": ("x = 1\r\n# c\ry = 2\r", "x = 1\ny = 2\n"),
    "a mark at its beginning": ("\ufeff'doc'\nx = 1\n", f"{gone(5)}\nx = 1\n"),
    "the encoding that it has": ("# -*- coding: utf-8 -*-\nx = 1\n", "x = 1\n"),
    "an encoding that changes nothing": ("# coding: latin-1\nx = 1  # a\n", "x = 1\n"),
    "other ways to write a name": ("\ufb01lter(\uff41\uff42)  # \uff41\n", "filter(ab)\n"),
    "a comment behind a return": ("# a\revil()  # b\r", "evil()\n"),
    "lines that only others see": ("# a\x85b\u2028c\vd\x1ce\fg\nx = 1\n", "x = 1\n"),
}
KEPT = {
    "a sharp in a string": "x = 'a # b'\n",
    "a sharp in a long string": 'x = """a # b\n# c\n\n\n\n# d"""\n',
    "a sharp in a format string": "x = f'{y} # {z:#x}'\n",
    "a sharp in a raw string": "x = r'\\\\' + r'\\'#'\n",
    "an address": "x = 'https://a.b//c'\n",
    "a continued line": "x = 1 + \\\n    2\n",
    "a continued string": "x = 'a\\\n# b'\n",
    "a division": 'x = """\nint_ = 7 // 2; void = {}\n"""\n',
    "code in Python": 'x = """\nfor i in y: int(i); z //= 2\n"""\n',
    "a string that is used": "def f():\n    return 'doc'\n",
    "a format string alone": "f'{g()}'\n",
    "a call": "'a'.join(b)\n",
    "a default": "def f(x='a'):\n    return x\n",
    "quotes in quotes": """x = '"#"' + "'#'" + '\\'#'\n""",
    "a number alone": "...\n1\n",
}
C_REMOVED = {
    "a line": ("float x; // one\n", "float x;\n"),
    "a whole line": ("int a;\n  // one\nint b;\n", "int a;\nint b;\n"),
    "a block": ("int/* one */x;\n", "int x;\n"),
    "a block of lines": ("int a;\n/* one\n * two\n */\nint b;\n", "int a;\nint b;\n"),
    "a joined line": ("int a; // one \\\ntwo\nint b;\n", "int a;\nint b;\n"),
    "after a number with marks": ("int a = 1'000; // don't\n", "int a = 1'000;\n"),
    "after an include": ("#include <a//b.h>\nint x; // c\n", "#include <a//b.h>\nint x;\n"),
    "after a raw string": ('auto x = R"a(")")a"; int y; // z\n', 'auto x = R"a(")")a"; int y;\n'),
    "quotes in it": ("int x; // it's \"so\nint y;\n", "int x;\nint y;\n"),
}
SHOWN_WHOLE = {
    "a docstring that is run": "'evil()'\nexec(__doc__)\n",
    "a docstring that is compiled": "'int evil();'\nload_inline(cpp_sources=[__doc__])\n",
    "a constant that is read": "def f():\n    'evil()'\n\nexec(f.__code__.co_consts[0])\n",
    "a line that is read": "def f():\n    'evil()'\n\nexec(linecache.getline(path, 2))\n",
    "a comment that is read": "# evil()\nexec(inspect.getsource(f)[2:])  # evil()\n",
    "a comment of its file": "# evil()\nexec(open('candidate.py').read()[2:])\n",
    "a comment of its module": "# evil()\nexec(__loader__.get_source('candidate')[2:])\n",
}
C_SHOWN_WHOLE = {
    "its comment is run": "load_inline(cpp_sources=x)\nexec(x.split('//')[1])\n",
    "nobody compiles it": "print(1)\n",
    "somebody else reads it": "load_inline(cpp_sources=x)\nf(x)\n",
    "it is found as a global": "load_inline(cpp_sources=x)\nf(globals())\n",
    "it is read as an attribute": "load_inline(cpp_sources=x)\nf(y.x)\n",
    "it is read by its name": "load_inline(cpp_sources=x)\nf(y, 'x')\n",
    "it is bound again": "x = x\nload_inline(cpp_sources=x)\n",
    "the compiler is another": "def load_inline(cpp_sources): ...\nload_inline(cpp_sources=x)\n",
    "the compiler is imported": "from y import f as load_inline\nload_inline(cpp_sources=x)\n",
    "the compiler is replaced": "z.load_inline = f\nz.load_inline(cpp_sources=x)\n",
    "its kernel tells it": "k = RawKernel(x, 'f')\nf(k.code)\n",
}
C_KEPT = {
    "an address": 'const char* x = "http://a"; int y;\n',
    "an include": "#include <torch/extension.h>\nint x;\n",
    "a macro": "#define A(x) \\\n  x ## x\nint y;\n",
    "quotes in a string": 'f("a\\" // b"); int y;\n',
    "several characters": "int x = 'a//b'; evil();\n",
    "marks in a number": "int x = 1'0; f(\"a'//b\"); evil();\n",
    "a raw string": 'auto x = R"x(" // )x"; int y; evil();\n',
    "a block that ends behind a backslash": "int x; /* *\\ \n/ evil(); /* */\n",
    "a backslash in disguise": "int x; // a ??/\nevil();\n",
    "a comment behind a backslash": "int x; \\// a\nevil(); \\ /* a */\n",
    "a carriage return": "int x; // a \r evil();\n",
}


@pytest.mark.parametrize("what", REMOVED)
def test_remarks_of_a_source_are_removed(what: str) -> None:
    source, left = REMOVED[what]
    assert stripped(source) == left


@pytest.mark.parametrize("what", KEPT)
def test_code_of_a_source_stays_unchanged(what: str) -> None:
    assert stripped(KEPT[what]) == KEPT[what]


@pytest.mark.parametrize("what", SHOWN_WHOLE)
def test_strings_that_the_source_could_read_stay(what: str) -> None:
    assert stripped(SHOWN_WHOLE[what]) == SHOWN_WHOLE[what]


UNSEEN = {
    "an order of its own": ("x = 'a\u202eb'\n", "x = 'a<U+202E>b'\n"),
    "a blank without width": ("x = {'a\u200b': 1}\n", "x = {'a<U+200B>': 1}\n"),
    "a name of fillers": ("\u3164 = 1\n", "<U+1160> = 1\n"),
    "a name with a variation": ("a\ufe0f = 1\n", "a<U+FE0F> = 1\n"),
    "a line end for others": ("x = 'a\u2028b'\n", "x = 'a<U+2028>b'\n"),
    "a control of the terminal": ("x = '\x1b[2K'\n", "x = '<U+001B>[2K'\n"),
    "an indentation that is undone": (
        "if x:\n    y\n    \fevil()\n",
        "if x:\n    y\n    <U+000C>evil()\n",
    ),
    "what is not parsed": ("def f(:\r# \u202e\r", f"{NOT_STRIPPED}def f(:\n# <U+202E>\n"),
}


@pytest.mark.parametrize("what", UNSEEN)
def test_invisible_characters_are_shown(what: str) -> None:
    source, shown = UNSEEN[what]
    assert stripped(source) == shown


def test_invisible_characters_push_no_code_out_of_view() -> None:
    source = "x = '" + "\u200b\u2060" * 40_000 + "'\nevil()\ny = '" + "\ufe0f" * 10_000 + "'\n"
    left = stripped(source)
    assert "\nevil()\n" in left
    assert left.replace("\ufffd", "") == "x = ''\nevil()\ny = ''\n"


@pytest.mark.parametrize("what", C_REMOVED)
def test_remarks_of_c_code_in_a_string_are_removed(what: str) -> None:
    code, left = C_REMOVED[what]
    assert stripped(c_source(code)) == c_source(left)


@pytest.mark.parametrize("what", C_SHOWN_WHOLE)
def test_c_code_that_more_than_a_compiler_could_read_stays(what: str) -> None:
    source = f"x = '''\nint f();\n// evil()\n'''\n{C_SHOWN_WHOLE[what]}"
    assert stripped(source) == source


def test_c_code_passed_directly_to_a_compiler_is_stripped() -> None:
    source = "load_inline(cpp_sources=['''\nint f();\n// a\n'''])\n"
    assert stripped(source) == source.replace("// a\n", "")


@pytest.mark.parametrize("what", C_KEPT)
def test_c_code_in_a_string_stays_unchanged(what: str) -> None:
    source = c_source(C_KEPT[what]).replace("\r", "\\r")
    source = source.replace("r'''", "'''") if "\\r" in source else source
    assert stripped(source) == source


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("int x;// a\\nevil();\\n", "int x;\\nevil();\\n"),
        ("int x; \\x2f* a *\\57 int y;", "int x;   int y;"),
        ('f(\\"a\\" "//"); evil(); // b', 'f(\\"a\\" "//"); evil();'),
        ("/* \\x2a\\x2f evil(); /* */ b", "  evil();   b"),
        ("int x; // \\N{LINE FEED} evil();", "int x; // \\N{LINE FEED} evil();"),
    ],
)
def test_c_code_is_read_with_pythons_escapes_applied(code: str, left: str) -> None:
    assert stripped(c_source(f"{code}\n", "")) == c_source(f"{left}\n", "")


def c_source(code: str, prefix: str = "r") -> str:
    """Return a program that compiles C and does nothing else."""
    return f"x = {prefix}'''\nint f();\n{code}'''\nload_inline(cpp_sources=x)\n"


CORPUS = [case for group in ("exploits", "exploits_cuda", "honest") for case in cases(group)]


@pytest.mark.parametrize("case", CORPUS, ids=[case.name for case in CORPUS])
def test_stripping_removes_the_headers_of_the_corpus_and_keeps_its_statements(case: Case) -> None:
    source = case.source
    left = stripped(source)
    assert not left.startswith(NOT_STRIPPED)
    assert "problem:" not in left or re.search("inspect|__file__|get_objects", source)
    assert steps_of(left) == steps_of(source)


# --- arbitrary text -------------------------------------------------------------------------------

WORDS = (
    "x",
    "=",
    "1",
    "'",
    '"',
    "'''",
    '"""',
    "#",
    "\n",
    "\n    ",
    "\\",
    "\\\n",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ";",
    ":",
    ",",
    "f'",
    "rb'",
    "def f():",
    "class A:",
    "if x:",
    "pass",
    "return",
    " ",
    "# c\n",
    "'doc'\n",
    "x = 1\n",
    "\r",
    "\f",
    "\t",
    "\0",
    "é",
    "\ud800",
    "//",
    "/*",
    "*/",
    "int f(int a);\n",
)
LINES = (
    "x = 1",
    "x = '#'",
    "y = f'{x}#'",
    '"doc"',
    "'''doc\n#'''",
    "if x:\n    'doc'",
    "z = (1,\n  2)",
    "def f():\n    '''doc'''\n    return 'a' \\\n        'b'",
    "class A: 'doc'",
    "x = 1; 'a'; y = 2",
    "('a'\n'b')",
    "x = '''\n\n\n\n# a\n'''",
    "for i in x:\n    pass",
    "",
    "é = '€'",
    "'a', 'b'",
)


def steps_of(source: str) -> list[str]:
    """Return every statement that is not only strings, without positions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for block in ("body", "orelse", "finalbody"):
            steps = getattr(node, block, None)
            if isinstance(steps, list):
                setattr(node, block, [s for s in steps if not is_idle(s)])
    return [ast.dump(node) for node in tree.body]


def is_idle(step: object) -> bool:
    if not isinstance(step, ast.Expr):
        return isinstance(step, ast.Pass)
    try:
        return is_said(ast.literal_eval(step.value))
    except ValueError:
        return False


def is_said(value: object) -> bool:
    if isinstance(value, tuple | list):
        return len(value) > 0 and all(map(is_said, value))
    return isinstance(value, str | bytes)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=30).map("".join) | st.text(max_size=60))
def test_no_text_raises_and_every_result_can_be_encoded(text: str) -> None:
    left = stripped(text)
    left.encode()
    assert len(left) <= len(text) * len(gone(10)) + len(NOT_STRIPPED) + 1


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(LINES), st.sampled_from(["", "# a", "  # 'b' \\", "\n#c\n\n\n"])),
        max_size=8,
    )
)
def test_stripping_keeps_a_programs_statements_and_leaves_no_comment(
    lines: list[tuple[str, str]],
) -> None:
    bare = "".join(f"{line}\n" for line, _ in lines)
    spoken = "".join(f"{line}{comment}\n" for line, comment in lines)
    left = stripped(spoken)
    assert not left.startswith(NOT_STRIPPED)
    assert steps_of(left) == steps_of(bare)
    assert "".join(left.split()) == "".join(stripped(bare).split())
    assert stripped(left) == left


C_WORDS = (
    "/*",
    "*/",
    "//",
    "\n",
    '"',
    "'",
    "x",
    "1",
    "\\",
    "\\\n",
    'R"(',
    ')"',
    ";",
    " ",
    "*",
    "/",
    "e()",
    "#include <a>",
    "1'0",
    "u8",
    "??/",
    "\\\\",
    "\\'",
    "\t",
)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(C_WORDS), max_size=24).map("".join), st.sampled_from(["r", ""]))
def test_no_c_code_is_mistaken_for_a_comment(code: str, prefix: str) -> None:
    source = f'x = {prefix}"""\nint f();\n{code}\nint g();\n"""\nload_inline(cpp_sources=x)\n'
    try:
        before = read(source)
    except SyntaxError:
        return
    assert compiled(read(stripped(source))) == compiled(before)


def read(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes
        return ast.parse(source)


def compiled(tree: ast.Module) -> str:
    """Return the C code in a program's only string as a slow compiler reads it, without blanks."""
    step = tree.body[0]
    assert isinstance(step, ast.Assign)
    assert isinstance(step.value, ast.Constant)
    return "".join(slowly_read(str(step.value.value)).split())


def slowly_read(text: str) -> str:
    """Return C without comments, a token at a time, lines joined first."""
    out, i, text = "", 0, text.replace("\\\n", "")
    while i < len(text):
        start = i
        if text.startswith("//", i):
            i = text.find("\n", i)
            start = i = len(text) if i < 0 else i
        elif text.startswith("/*", i) and "*/" in text[i + 2 :]:
            start = i = text.index("*/", i + 2) + 2
        elif text.startswith("/*", i):
            i = len(text)
        elif text.startswith("#include <", i) and ">" in text[i:].split("\n")[0]:
            i = text.index(">", i)
        elif text[i].isalpha():
            while text[i].isalnum():
                i += 1
            if text[start:i] in ("R", "u8R") and text[i : i + 2] == '"(':
                i = text.find(')"', i + 2) + 2
                i = len(text) if i < 2 else i
        elif text[i].isdigit():
            while text[i].isalnum() or (text[i] == "'" and text[i + 1].isalnum()):
                i += 1
        elif text[i] in "\"'":
            i += 1
            while text[i] not in ("\n", text[start]):
                i += 2 if text[i] == "\\" else 1
            i += text[i] == text[start]
        else:
            i += 1
        out += text[start:i]
    return out


# --- long sources ---------------------------------------------------------------------------------

C, END = "x = '''\nint f(int a);\n", "\n'''\nload_inline(cpp_sources=x)"
LONG = {
    "comments": ("", "# a\n", 20_000, ""),
    "blank lines": ("", " \n", 45_000, ""),
    "strings": ("", '"";', 30_000, ""),
    "docstrings": ("", '""\n', 30_000, ""),
    "one line of letters": ("é = [", "'é',", 20_000, "]  # a"),
    "one line of wide names": ("", "\uff41;", 30_000, "x"),
    "format strings": ("", "x = f'{1}'; ", 7_000, ""),
    "C blocks": (C, "/**/", 20_000, END),
    "C blocks of lines": (C, "/*\n*/", 15_000, END),
    "C lines": (C, "  //\n", 15_000, END),
    "C without an end": (C, "/* *", 20_000, END),
    "C quotes": (C, '"', 90_000, END),
    "C blanks": (C, " ", 90_000, f"// a{END}"),
    "C slashes": (C, " /", 45_000, END),
    "C raw strings": (C, 'R"( ', 20_000, END),
    "C raw strings with marks": (C, 'R"a', 30_000, END),
    "C marks": (C, "1'", 40_000, END),
    "C letters": (C, "a", 90_000, END),
    "C declared": (C, "int ", 22_000, END),
    "many strings of C": ("", f"{C}//{END}\n", 3_000, ""),
    "escapes": (C, "\\x41", 20_000, END),
    "C joined": (C, "\\\n", 40_000, END),
}
"""Long sources: prefix, repeated text, number of repetitions, suffix."""


def long(what: str, share: int = 1) -> str:
    before, unit, count, after = LONG[what]
    return before + unit * (count // share) + after


@pytest.mark.slow
@pytest.mark.parametrize("what", [*HOSTILE, *LONG])
def test_a_hostile_source_is_stripped_within_seconds(what: str) -> None:
    started = time.process_time()
    left = stripped(HOSTILE[what] if what in HOSTILE else long(what))
    assert time.process_time() - started < 5
    assert len(left) < MAX_SHOWN + 100


@pytest.mark.slow
@pytest.mark.parametrize("what", LONG)
def test_a_source_four_times_as_long_takes_about_four_times_as_long(what: str) -> None:
    def cost(source: str) -> float:
        laps: list[float] = []
        for _ in range(3):
            started = time.process_time()
            stripped(source)
            laps.append(time.process_time() - started)
        return min(laps)

    assert cost(long(what)) < 10 * cost(long(what, share=4)) + 0.1


@pytest.mark.slow
def test_the_middle_of_a_long_source_is_replaced_by_a_mark() -> None:
    left = stripped("".join(f"x{i} = {i}\n" for i in range(6_000)), max_chars=1_000)
    assert left.startswith("x0 = 0\n")
    assert left.endswith("x5999 = 5999\n")
    assert "characters left out" in left
    assert len(left) < 1_100


def test_equal_code_has_one_meaning_whatever_its_remarks() -> None:
    said = ("'doc'\nx = 1  # one\n", "'another doc'\n\n# two\nx = 1\n", "x  =  1\n")
    assert len({meaning(source) for source in said}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1\n", "x = 1.0\n"),
        ("x = 'a'\n", "x = 'b'\n"),
        ("f(x)\n", "g(x)\n"),
        (f"x = {gone(5)}\n", f"x = {gone(6)}\n"),
        ("'a'\nexec(__doc__)\n", "'b'\nexec(__doc__)\n"),
        ("x = 1 # a\0", "x = 1 # b\0"),
    ],
)
def test_different_code_has_a_different_meaning(one: str, other: str) -> None:
    assert meaning(one) != meaning(other)


@pytest.mark.parametrize(
    "source",
    [
        "def f(:  # a\n",
        "x = 1 # a\0",
        "# coding: utf-7\n# +AAo-evil()\n",
        "x = '\ud800' # a",
        "x = 1  # a\n" * (MAX_PARSED // 10),
    ],
)
def test_an_unparsable_source_is_shown_unchanged_and_marked(source: str) -> None:
    left = stripped(source)
    assert left.startswith(NOT_STRIPPED)
    assert "# a" in left or "evil()" in left
