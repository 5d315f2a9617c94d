"""Mixed text to compare tokenizers on: the same bytes for the same seed and sources."""

import random
import sys
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLANKS = [*" \t\n\r\v\f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\u180e\u200b\ufeff\x1c\x1f", "\r\n", *map(chr, range(0x2000, 0x200B))]
SCRIPTS = [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x500), (0x530, 0x700), (0x900, 0xE00), (0xE00, 0x1100), (0x1100, 0x1200),
    (0x1E00, 0x2000), (0x2000, 0x2800), (0x3000, 0x3100), (0x4E00, 0xA000), (0xA000, 0xA4D0), (0xAC00, 0xD7A4), (0x10300, 0x10900),
    (0x1D400, 0x1D800), (0x1F000, 0x1FA00), (0x20000, 0x2A000)]


def code(source, n):
    """Pieces of the project's sources and of Python's library."""
    files = sorted(p for p in [*ROOT.glob("*/**/*.[ch]"), *ROOT.glob("*/**/*.md"), *Path(unicodedata.__spec__.origin or "/").parent.glob("*.py"),
        *Path(random.__file__).parent.glob("**/*.py")] if p.is_file() and "build" not in p.parts[len(ROOT.parts):][:1])
    out = b""
    while len(out) < n:
        out += source.choice(files).read_bytes()[:60000]
    return out[:n]


def words(source, n):
    """Words of one script after the other, with punctuation, digits and contractions between them."""
    out, size = [], 0
    while size < n:
        low, high = source.choice(SCRIPTS)
        chars = [c for c in (chr(source.randrange(low, high)) for _ in range(60)) if unicodedata.category(c) not in ("Cn", "Cs")]
        for _ in range(source.randrange(1, 40)):
            word = "".join(source.choice(chars or ["x"]) for _ in range(source.randrange(1, 12)))
            word += source.choice([" ", " ", " ", ", ", ".\n", "'s ", "'LL ", "'ve", "'re ", " 12", "3,141.59 ", "'", " '"])
            out.append(word)
            size += len(word.encode())
    return "".join(out).encode()


def emoji(source, n):
    out = ""
    while len(out) < n // 4:
        out += chr(source.randrange(0x1F300, 0x1F650)) + source.choice(["", "\u200d", "\ufe0f", chr(source.randrange(0x1F3FB, 0x1F400)), " ", "  "])
    return out.encode()


def blanks(source, n):
    out = ""
    while len(out) < n // 2:
        out += source.choice(BLANKS) * source.choice([1, 1, 1, 2, 3, 8, 70]) + source.choice(["", "", "a", "1", "(", "the"])
    return out.encode()


def broken(source, n):
    """Random bytes, and characters that are cut off, between words."""
    out = b""
    while len(out) < n:
        out += source.choice([source.randbytes(source.randrange(1, 9)), "\u20ac\U0001f600\u00e9".encode()[:source.randrange(1, 9)],
            b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80"]) + source.choice([b"", b" ", b" word", b"\n"])
    return out


def any_character(source, n):
    out = []
    while len(out) < n // 3:
        char = chr(source.randrange(sys.maxunicode + 1))
        if unicodedata.category(char) not in ("Cn", "Cs"):
            out.append(char + source.choice(["", "", " ", "a"]))
    return "".join(out).encode()


def mixed(n_bytes, seed=1):
    source = random.Random(seed)
    out, size = [], 0
    while size < n_bytes:
        make = source.choice([code, code, code, words, words, emoji, blanks, broken, any_character])
        out.append(make(source, source.randrange(1000, 100000)))
        size += len(out[-1])
    return b"".join(out)[:n_bytes]


def plain(n_bytes, seed=1):
    """Code and documentation."""
    return code(random.Random(seed), n_bytes)
