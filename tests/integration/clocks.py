"""Other times for gpt2d, or another program, than the machine's (clocks.c).

    clocks = Clocks(tmp_path)
    with Daemon(home=tmp_path, environment=clocks.environment) as d:
        clocks.set(utc_s=10 * YEAR_S)      # the wall clock has jumped
        clocks.set(boot_s=DAY_S)           # a day has passed since boot beyond what has
        clocks.set(mono_s=600)             # the clock of deadlines is ahead
"""

import mmap
import os
import struct

from helpers import BUILD

DAY_S = 86400
YEAR_S = 365 * DAY_S


class Clocks:
    def __init__(self, home, program="gpt2d"):
        folder = home / "clocks"
        folder.mkdir()
        (folder / program).write_bytes(bytes(24))
        with open(folder / program, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 24)
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:verify_asan_link_order=0"
        self.environment = {"LD_PRELOAD": str(BUILD / "tests" / "clocks.so"), "GPT2D_CLOCKS": str(folder),
            "ASAN_OPTIONS": sanitizer}

    def set(self, utc_s=None, boot_s=None, mono_s=None):
        """Ahead of the machine's clock by this much; None: unchanged."""
        for at, value in ((0, utc_s), (8, boot_s), (16, mono_s)):
            if value is not None:
                self.map[at:at + 8] = struct.pack("q", value)
