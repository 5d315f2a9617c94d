"""GPT-2's tokenizer in plain Python, slow and from its definition, and a small vocabulary for it.

Pieces are cut by hand instead of by a pattern: Python's re has no classes of Unicode.
"""

import collections
import functools
import unicodedata

BLANKS = frozenset([*map(chr, range(9, 14)), *map(chr, range(0x2000, 0x200B)), *" \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"])
CONTRACTIONS = ("s", "t", "m", "d", "ll", "ve", "re")
SAMPLE = "the quick fox isn't here; the other one is there:  we'll see if (a  ==  b) then x = 12 end \u00e9\u4f60 \U0001f600\n\n    the end\n"


def alphabet():
    """The characters of bytes in vocab.json."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


ALPHABET = alphabet()


def kind(char):
    return "blank" if char in BLANKS else {"L": "letter", "N": "number"}.get(unicodedata.category(char)[0], "other")


def run(text, at, wanted):
    end = at
    while end < len(text) and kind(text[end]) == wanted:
        end += 1
    return end


def pieces(text):
    at = 0
    while at < len(text):
        end = 0
        if text[at] == "'":
            end = max((at + 1 + len(c) for c in CONTRACTIONS if text.startswith(c, at + 1)), default=0)
        begin = at + (text[at] == " ")
        if not end and begin < len(text) and kind(text[begin]) != "blank":
            end = run(text, begin, kind(text[begin]))
        if not end:
            end = run(text, at, "blank")
            if end < len(text) and end - at > 1:
                end -= 1 # the last blank belongs to the next piece
        yield "".join(ALPHABET[byte] for byte in text[at:end].encode())
        at = end


def merge(tokens, pair):
    out, at = [], 0
    while at < len(tokens):
        both = tuple(tokens[at:at + 2]) == pair
        out.append("".join(pair) if both else tokens[at])
        at += 1 + both
    return out


class Reference:
    def __init__(self, vocabulary, merges):
        self.vocabulary = vocabulary
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.piece = functools.cache(self.piece)

    def piece(self, piece):
        tokens = list(piece)
        while pairs := [pair for pair in zip(tokens, tokens[1:]) if pair in self.ranks]:
            tokens = merge(tokens, min(pairs, key=self.ranks.get))
        return [self.vocabulary[token] for token in tokens]

    def encode(self, text):
        return [id for piece in pieces(text) for id in self.piece(piece)]


def small_vocabulary(n_merges=40):
    """{token: id} and the merges, learned from SAMPLE."""
    words = [list(piece) for piece in pieces(SAMPLE)]
    merges = []
    while len(merges) < n_merges:
        counts = collections.Counter(pair for word in words for pair in zip(word, word[1:]))
        best = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(best)
        words = [merge(word, best) for word in words]
    tokens = [*(ALPHABET[byte] for byte in range(256)), *("".join(pair) for pair in merges), "<|endoftext|>"]
    assert len(set(tokens)) == len(tokens)
    return {token: id for id, token in enumerate(tokens)}, merges
