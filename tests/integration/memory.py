"""No memory for a chosen allocation of gpt2d (memory.c).

    memory = Memory(tmp_path)
    with Daemon(home=tmp_path, environment=memory.environment) as d:
        memory.refuse(5)       # the fifth from now on
        memory.give()          # all again
        memory.refuse(1, n=FOREVER, size=4711)  # whoever asks for that many bytes

GPT2D_LONG=1 in the environment: every allocation instead of a sample.
"""

import mmap
import struct

from helpers import BUILD

FOREVER = 1 << 62
LIBRARY = BUILD / "tests" / "memory.so"


def why_not():
    """Why there is no such test of this build, or None."""
    if not LIBRARY.exists():
        return f"{LIBRARY} is not built"
    if b"__asan_init" in (BUILD / "daemon" / "gpt2d").read_bytes():
        return "a sanitizer has its own malloc"
    return None


class Memory:
    def __init__(self, home, program="gpt2d"):
        folder = home / "memory"
        folder.mkdir()
        (folder / program).write_bytes(bytes(40))
        with open(folder / program, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 40)
        self.environment = {"LD_PRELOAD": str(LIBRARY), "GPT2D_MEMORY": str(folder)}

    @property
    def count(self):
        return struct.unpack("q", self.map[:8])[0]

    @property
    def refused(self):
        """How often."""
        return struct.unpack("q", self.map[24:32])[0]

    def refuse(self, first, n=1, size=0):
        """The first allocation from now on and what follows, n in all; with size only those of so many bytes."""
        now = self.count
        self.map[8:32] = bytes(24)
        self.map[32:40] = struct.pack("q", size)
        self.map[16:24] = struct.pack("q", now + first + n - 1)
        self.map[8:16] = struct.pack("q", now + first)  # last: it is what switches it on

    def give(self):
        self.map[8:16] = bytes(8)
