import time

import pytest

from fairlease.cli.document import MAX_BYTES, MAX_NODES, DocumentError, Place, read_document

K = MAX_BYTES


def nested(depth: int) -> str:
    return "".join(f"{' ' * level}k:\n" for level in range(depth))


HOSTILE = [
    # bombs
    ("nine lines of doubling aliases", "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]", 1, 4, "anchors and aliases"),
    ("an alias of nothing", "a: *b", 1, 4, "anchors and aliases"),
    ("an anchor on a mapping", "a: &a\n  b: 1", 1, 4, "anchors and aliases"),
    ("an anchor on a key", "&a k: 1", 1, 1, "anchors and aliases"),
    ("a merge of an alias", "a: 1\n<<: *b", 2, 5, "anchors and aliases"),
    ("a mapping that holds itself", "&a {x: *a}", 1, 1, "anchors and aliases"),
    ("more than the limit of bytes", "a: " + "x" * K, 1, 1, f"the limit is {K}"),
    ("a million brackets", "[" * (K - 10), 1, 21, "deeper than 20"),
    ("brackets line by line", "[\n" * 1000, 21, 1, "deeper than 20"),
    ("braces", "{a: " * 1000, 1, 81, "deeper than 20"),
    ("nested block mappings", nested(30), 21, 21, "deeper than 20"),
    ("nested block sequences", "- " * 1000, 1, 41, "deeper than 20"),
    ("nested compact keys", "? " * 1000, 1, 3, "a key is text"),
    ("many keys", "".join(f"k{i}: 1\n" for i in range(6_000)), 2_500, 8, f"more than {MAX_NODES}"),
    ("many items", "[" + "1," * 6_000 + "]", 1, 10_000, f"more than {MAX_NODES}"),
    # shape
    ("an empty file", "", 1, 1, "empty"),
    ("only a comment", "# nothing\n", 1, 1, "empty"),
    ("only blank lines", "\n\n\n", 1, 1, "empty"),
    ("two documents", "a: 1\n---\nb: 2", 2, 1, "second document"),
    ("two documents after an end", "a: 1\n...\n---\nb: 2", 3, 1, "second document"),
    ("an old version", "%YAML 1.1\n---\na: 1", 2, 1, "directives"),
    ("a tag handle", "%TAG ! tag:x,2000:\n---\na: 1", 2, 1, "directives"),
    ("a duplicate key", "a: 1\nb: 2\na: 3", 3, 1, "'a' stands here a second time"),
    ("a duplicate key deep down", "s:\n  h: 1\n  h: 1", 3, 3, "second time"),
    ("a duplicate key in JSON", '{"a": 1, "a": 2}', 1, 10, "second time"),
    ("the same key in other quotes", "'a': 1\n\"a\": 2", 2, 1, "second time"),
    ("a number as key", "1: x", 1, 1, "a key is text"),
    ("a truth as key", "true: x", 1, 1, "a key is text"),
    ("nothing as key", "~: x", 1, 1, "a key is text"),
    ("a list as key", "? [a]\n: b", 1, 3, "a key is text"),
    ("a mapping as key", "{a: 1}: b", 1, 1, "a key is text"),
    # tags
    ("a Python object", "!!python/object/apply:os.system [id]", 1, 1, "tags"),
    ("a tag of one's own", "a: !secret x", 1, 4, "tags"),
    ("a standard tag", "a: !!str 5", 1, 4, "tags"),
    ("a full tag", "a: !<tag:x> y", 1, 4, "tags"),
    ("the bare tag", "a: ! y", 1, 4, "tags"),
    ("binary", "a: !!binary aGk=", 1, 4, "tags"),
    # numbers
    ("not a number", "a: .nan", 1, 4, "finite"),
    ("infinity", "a: .inf", 1, 4, "finite"),
    ("below all numbers", "a: -.INF", 1, 4, "finite"),
    ("beyond all numbers", "a: 1e999", 1, 4, "beyond all numbers"),
    ("beyond all numbers in JSON", '{"a": -1e999}', 1, 7, "beyond all numbers"),
    ("twenty digits", "a: 12345678901234567890", 1, 4, "20 characters"),
    ("sixty thousand digits", "a: " + "9" * 60_000, 1, 4, "60000 characters"),
    ("a huge hexadecimal", "a: 0x" + "f" * 100, 1, 4, "102 characters"),
    # bytes and characters
    ("latin-1", b"a: caf\xe9", 1, 7, "0xe9 is not UTF-8"),
    ("a cut letter", b"a: 1\nb: \xe4\xb8", 2, 4, "0xe4 is not UTF-8"),
    ("an overlong slash", b"a: \xc0\xaf", 1, 4, "0xc0 is not UTF-8"),
    ("a surrogate in UTF-8", b"a: \xed\xa0\x80", 1, 4, "0xed is not UTF-8"),
    ("UTF-16", "a: 1".encode("utf-16"), 1, 1, "0xff is not UTF-8"),
    ("a null", "a: \x00", 1, 4, "U+0000"),
    ("a bell", "a: 1\nb: x\x07", 2, 5, "U+0007"),
    ("an escape sequence", "a: \x1b[2J", 1, 4, "U+001B"),
    ("delete", "a: \x7f", 1, 4, "U+007F"),
    ("next line", "a: 1\x85b: 2", 1, 5, "U+0085"),
    ("a line separator", "a: 1\u2028b: 2", 1, 5, "U+2028"),
    ("text turned round", "a: \u202egnp.exe", 1, 4, "U+202E"),
    ("an isolate", "a: \u2066x", 1, 4, "U+2066"),
    ("a byte order mark inside", "a: \ufeffx", 1, 4, "U+FEFF"),
    ("an escaped null", 'a: "\\x00"', 1, 4, "U+0000"),
    ("an escaped carriage return", 'a: "\\r"', 1, 4, "U+000D"),
    ("an escaped reversal", 'a: "\\u202e"', 1, 4, "U+202E"),
    ("half of a surrogate pair", 'a: "\\ud83d"', 1, 4, "not allowed in text"),
    ("the halves the wrong way round", 'a: "\\ude00\\ud83d"', 1, 4, "not allowed in text"),
    ("beyond Unicode", 'a: "\\U00110000"', 1, 1, "not YAML"),
    ("a control character in a key", '"\\x1b[2J": 1', 1, 1, "U+001B"),
    # syntax
    ("a tab as indentation", "a:\n\t- b", 2, 1, "'\\t' that cannot start"),
    ("an open quote", "a: 'x", 1, 6, "end of stream"),
    ("an open list", "a: [1,\n  2", 2, 4, "not YAML"),
    ("a closing bracket too many", "a: ]", 1, 4, "not YAML"),
    ("a value in a value", "a: b: c", 1, 5, "mapping values"),
    ("a reserved letter", "a: @x", 1, 4, "cannot start"),
    ("an unknown escape", 'a: "\\q"', 1, 6, "escape"),
    ("broken indentation", "a:\n    b: 1\n  c: 2", 3, 3, "not YAML"),
]


@pytest.mark.parametrize(
    ("text", "line", "column", "words"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE]
)
def test_a_hostile_file_is_refused_where_it_stops_being_yaml(
    text: str | bytes, line: int, column: int, words: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        read_document(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    assert words in caught.value.text
    assert caught.value.place == (line, column)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("08", 8),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("-3", -3),
        ("1_000", "1_000"),
        ("2026-11-29", "2026-11-29"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("true", True),
        ("False", False),
        ("tRUE", "tRUE"),
        ("~", None),
        ("Null", None),
        ("'true'", "true"),
        ('"12"', "12"),
        ("30m", "30m"),
        ('"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
        ('"\\/"', "/"),
        ("中文", "中文"),
        ("|\n  x\n  y\n", "x\ny\n"),
        (">\n  x\n  y\n", "x y\n"),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    data = read_document(f"a: {text}\n".encode()).data
    assert isinstance(data, dict)
    assert (data["a"], type(data["a"])) == (value, type(value))


def test_json_is_yaml_with_tabs_and_all() -> None:
    document = read_document(b'{\n\t"a": {"b": [1,\t{"c": null}]}\n}\n')
    assert document.data == {"a": {"b": [1, {"c": None}]}}
    assert document.place_of("a.b.1.c") == Place(2, 18)


def test_every_entry_has_its_place_and_an_absent_one_that_of_its_surroundings() -> None:
    document = read_document(b"\xef\xbb\xbfa:\r\n  b: [x,\r\n      y]\r\nc: 1\r\n")
    assert document.places == {
        "": Place(1, 1),
        "a": Place(1, 1),
        "a.b": Place(2, 3),
        "a.b.0": Place(2, 7),
        "a.b.1": Place(3, 7),
        "c": Place(4, 1),
    }
    assert document.place_of("a.b.1.z.q") == Place(3, 7)
    assert document.place_of("missing") == Place(1, 1)


def test_twenty_levels_are_allowed_and_five_thousand_entries() -> None:
    assert read_document(b"[" * 20 + b"]" * 20).data is not None
    assert read_document(("[" + "1," * (MAX_NODES - 1) + "]").encode()).data == [1] * (MAX_NODES - 1)


@pytest.mark.parametrize(
    "text", ["[" * (K - 1), "{a: " * (K // 4), '"' + "x\n" * (K // 2 - 1), "? " * (K // 2), "1" * K]
)
def test_the_worst_files_cost_little(text: str) -> None:
    began_s = time.process_time()
    with pytest.raises(DocumentError):
        read_document(text.encode())
    assert time.process_time() - began_s < 2
