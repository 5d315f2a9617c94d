"""The rules of the source tree, each a function from a tree to what breaks it.

A finding is "file:line: what". test_tree.py runs every rule over the project, test_rules.py over
samples that must be found.
"""

import re
from pathlib import Path

FOLDERS = ("proto", "daemon", "engine", "kernels", "ctl", "tests", "etc", "slurm", "packaging")
C_ENDINGS = (".c", ".h", ".cu", ".cuh")

# The table of rooms: which rooms a room may include. A folder that has no row belongs to its parent's room.
PROTO = {"proto", "proto/spec", "proto/schema", "proto/stats", "proto/host", "proto/experiment"}
DAEMON = {"daemon/config", "daemon/store", "daemon/control", "daemon/runs", "daemon/engines", "daemon/nodes"}
ENGINE = {"engine/train", "engine/comm", "engine/data", "engine/report", "engine/check", "engine/checkpoint"}
CTL = {"ctl/link", "ctl/print", "ctl/results", "ctl/data", "ctl/import", "ctl/verbs"}
ROOMS = {
    "proto": {"proto", "proto/host"},
    "proto/host": {"proto/host"},
    "proto/stats": {"proto/stats", "proto/host"},
    "proto/schema": {"proto/schema", "proto", "proto/host"},
    "proto/spec": {"proto/spec", "proto/schema", "proto/stats", "proto", "proto/host"},
    "proto/experiment": {"proto/experiment", "proto/spec", "proto/stats", "proto", "proto/host"},
    "daemon": {"daemon"} | DAEMON | PROTO,
    "daemon/config": {"daemon/config"} | PROTO,
    "daemon/store": {"daemon/store"} | PROTO,
    "daemon/control": {"daemon/control", "daemon/config", "daemon/store"} | PROTO,
    "daemon/engines": {"daemon/engines", "daemon/config", "daemon/store"} | PROTO,
    "daemon/nodes": {"daemon/nodes", "daemon/engines", "daemon/config", "daemon/store"} | PROTO,
    "daemon/runs": DAEMON | PROTO,
    "engine": {"engine", "kernels"} | ENGINE | PROTO,
    "engine/comm": {"engine/comm", "kernels"} | PROTO,
    "engine/data": {"engine/data", "kernels"} | PROTO,
    "engine/report": {"engine/report", "kernels"} | PROTO,
    "engine/train": {"engine/train", "engine/comm", "engine/data", "engine/report", "kernels"} | PROTO,
    "engine/checkpoint": {"engine/checkpoint", "engine/train", "engine/comm", "engine/data", "engine/report", "kernels"}
    | PROTO,
    "engine/check": {"engine/check", "engine/checkpoint", "engine/train", "engine/comm", "engine/data", "engine/report", "kernels"} | PROTO,
    "kernels": {"kernels"},
    "kernels/cpu": {"kernels", "kernels/cpu"},
    "kernels/cuda": {"kernels", "kernels/cuda"},
    "ctl": {"ctl"} | CTL | PROTO,
    "ctl/link": {"ctl/link"} | PROTO,
    "ctl/print": {"ctl/print"} | PROTO,
    "ctl/results": {"ctl/results", "ctl/link", "ctl/print"} | PROTO,
    "ctl/data": {"ctl/data", "ctl/link", "ctl/print"} | PROTO,
    "ctl/import": {"ctl/import"} | PROTO,
    "ctl/verbs": CTL | PROTO,
}
ROOMS["tests"] = {"tests"} | set(ROOMS)

# Headers that are not the C library's, by the beginning of the name. proto's own headers hand out
# json_t, so who may include proto may include jansson.
LIBRARIES = {
    "jansson.h": {"proto", "daemon", "engine", "ctl", "tests"},
    "jsmn.h": {"proto", "tests"},
    "openssl/": {"proto", "daemon", "tests"},
    "event2/": {"daemon", "tests"},
    "systemd/": {"daemon", "tests"},
    "sqlite3.h": {"daemon", "tests"},
    "munge.h": {"daemon", "tests"},
    "ucp/": {"engine", "tests"},
    "ucs/": {"engine", "tests"},
    "nccl.h": {"engine", "tests"},
    "nvtx3/": {"engine", "tests"},
    "cupti": {"engine", "tests"},
    "nvml.h": {"engine", "tests"},
    "cblas.h": {"kernels/cpu", "tests"},
    "cuda": {"kernels/cuda", "tests"},
    "cublas": {"kernels/cuda", "tests"},
    "cub/": {"kernels/cuda"},
    "cooperative_groups": {"kernels/cuda"},
    "mma.h": {"kernels/cuda"},
    "nvtx3/": {"kernels/cuda"},
    "zlib.h": {"ctl"},
    "zstd.h": {"ctl"},
    "pcre2.h": {"ctl"},
    "cmocka.h": {"tests"},
}

LIBC = set("""
assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h iso646.h limits.h locale.h math.h setjmp.h
signal.h stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdio_ext.h stdlib.h stdnoreturn.h
string.h threads.h time.h uchar.h wchar.h wctype.h
arpa/inet.h dirent.h dlfcn.h endian.h fcntl.h fnmatch.h fts.h ftw.h getopt.h glob.h grp.h ifaddrs.h
langinfo.h libgen.h link.h malloc.h netdb.h net/if.h netinet/in.h netinet/tcp.h paths.h poll.h
pthread.h pty.h pwd.h regex.h sched.h semaphore.h spawn.h strings.h sysexits.h syslog.h termios.h
unistd.h utime.h
sys/auxv.h sys/epoll.h sys/eventfd.h sys/file.h sys/inotify.h sys/ioctl.h sys/mman.h sys/param.h
sys/prctl.h sys/queue.h sys/random.h sys/resource.h sys/select.h sys/sendfile.h sys/signalfd.h sys/socket.h
sys/stat.h sys/statfs.h sys/statvfs.h sys/syscall.h sys/sysinfo.h sys/sysmacros.h sys/time.h
sys/timerfd.h sys/times.h sys/timex.h sys/types.h sys/uio.h sys/un.h sys/utsname.h sys/vfs.h sys/wait.h
linux/capability.h linux/magic.h linux/close_range.h linux/limits.h
immintrin.h x86intrin.h cpuid.h
""".split())

COLUMNS = 100
C_LINES = 900
FUNCTION_LINES = 60
UMBRELLA_INCLUDES = 10

UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
BANNED_NAMES = re.compile(r"^(util|utils|common|misc|helpers|all|global|globals)\.(c|h|cu|cuh)$")


def files(root, endings):
    """Files of the tree with one of the endings, sorted, without build folders and hidden ones."""
    root = Path(root)
    found = []
    for top in sorted(root.iterdir()):
        if top.name.startswith((".", "build")):
            continue
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.name.endswith(endings):
                found.append(path)
    return found


def relative(root, path):
    return path.relative_to(root).as_posix()


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")


def blank_comments(text):
    """The text with each character of a block comment replaced by a letter; lines stay."""
    return re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", "c", match[0]), text, flags=re.S)


def room_of(name):
    folders = name.split("/")[:-1]
    for depth in range(len(folders), 0, -1):
        if "/".join(folders[:depth]) in ROOMS:
            return "/".join(folders[:depth])
    return folders[0] if folders else ""


def row_of(room, table):
    """The row for a nested room: its own, or that of a parent folder."""
    return any(room == name or room.startswith(name + "/") for name in table)


def library_of(header):
    if header in LIBC:
        return None
    for prefix in LIBRARIES:
        if header.startswith(prefix):
            return prefix
    return header


def includes(root):
    """Every include follows the table of rooms, written from the root of the tree."""
    findings = []
    for path in files(root, C_ENDINGS):
        name = relative(root, path)
        room = room_of(name)
        for number, line in enumerate(lines(path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            where, header = f"{name}:{number}", match[2]
            if match[1] == '"':
                if "/" not in header or ".." in header:
                    findings.append(f'{where}: "{header}" is not written from the root of the tree')
                elif not (Path(root) / header).is_file():
                    findings.append(f'{where}: "{header}" does not exist')
                elif room_of(header) not in ROOMS.get(room, set()):
                    findings.append(f"{where}: {room} must not know {room_of(header)} ({header})")
                continue
            library = library_of(header)
            if library is None:
                continue
            if library not in LIBRARIES:
                findings.append(f"{where}: <{header}> is in no row of rules.py")
            elif not row_of(room, LIBRARIES[library]):
                findings.append(f"{where}: {room} must not know <{header}>")
    return findings


def no_cuda_switch(root):
    """engine/ is the same for every backend: no preprocessor conditions about CUDA."""
    findings = []
    for path in files(root, C_ENDINGS):
        name = relative(root, path)
        if not name.startswith("engine/"):
            continue
        for number, line in enumerate(lines(path), 1):
            if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*(CUDA|NVCC|CPU)", line):
                findings.append(f"{name}:{number}: {line.strip()}")
    return findings


def no_grab_bags(root):
    """No common/, no util.c, no header that only gathers others."""
    findings = []
    for path in files(root, C_ENDINGS):
        name = relative(root, path)
        if BANNED_NAMES.match(path.name):
            findings.append(f"{name}: a name that says nothing about its subject")
        if {"common", "util", "utils", "misc", "include"} & set(path.relative_to(root).parts[:-1]):
            findings.append(f"{name}: a folder without a subject")
        if path.suffix not in (".h", ".cuh"):
            continue
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
        code = [line for line in text.split("\n") if line.strip()]
        own = [line for line in code if re.match(r'\s*#\s*include\s*"', line)]
        rest = [line for line in code if not re.match(r"\s*#\s*(include|ifndef|define|endif)", line)]
        if len(own) >= UMBRELLA_INCLUDES or (len(own) > 1 and not rest):
            findings.append(f"{name}: an umbrella header ({len(own)} own includes)")
    return findings


def layout(root):
    """Tabs, 100 columns, no trailing blanks, a newline at the end, files of one subject's size."""
    findings = []
    for path in files(root, C_ENDINGS):
        name = relative(root, path)
        text = lines(path)
        if text[-1] != "":
            findings.append(f"{name}:{len(text)}: no newline at the end of the file")
        if len(text) - 1 > C_LINES:
            findings.append(f"{name}: {len(text) - 1} lines, at most {C_LINES}")
        for number, line in enumerate(text, 1):
            where = f"{name}:{number}"
            width = len(line.expandtabs(8))
            if width > COLUMNS:
                findings.append(f"{where}: {width} columns, at most {COLUMNS}")
            if line != line.rstrip():
                findings.append(f"{where}: blanks at the end of the line")
        for number, line in enumerate(blank_comments(path.read_text(encoding="utf-8")).split("\n"), 1):
            if re.match(r" +\S|\t+ {8}", line):
                findings.append(f"{name}:{number}: indented by spaces")
    return findings


def function_sizes(root):
    """A C function does one thing and fits on one screen; CUDA functions, whose kernels contain their tiles, are not counted."""
    findings = []
    for path in files(root, (".c",)):
        begun = name = None
        for number, line in enumerate(lines(path), 1):
            if re.match(r"[A-Za-z_].*\(", line):
                name = line
            if line == "{":
                begun = number
            elif line == "}" and begun is not None:
                if number - begun - 1 > FUNCTION_LINES:
                    findings.append(f"{relative(root, path)}:{begun}: {number - begun - 1} lines, "
                        f"at most {FUNCTION_LINES}: {name}")
                begun = None
    return findings


def nothing_unfinished(root):
    """No unfinished notes in the sources."""
    findings = []
    for path in files(root, C_ENDINGS + (".py", ".build", ".sh")):
        name = relative(root, path)
        for number, line in enumerate(lines(path), 1):
            if UNFINISHED.search(line):
                findings.append(f"{name}:{number}: {line.strip()}")
    return findings


def header_comments(root):
    """A header begins with "<name>.h: what it is for" and has a guard with its path."""
    findings = []
    for path in files(root, (".h", ".cuh")):
        name = relative(root, path)
        text = path.read_text(encoding="utf-8")
        opening = re.match(r"/\*\s*(?:\*\s*)?(\S+):\s", text)
        if not opening or opening[1] != path.name:
            findings.append(f'{name}:1: does not begin with "/* {path.name}: ..."')
        guard = "GPT2D_" + re.sub(r"\W", "_", name).upper()
        if not re.search(rf"^#ifndef {guard}\n#define {guard}$", text, flags=re.M):
            findings.append(f"{name}: no guard {guard}")
    return findings


def prefixes_of(path):
    """The allowed prefixes of public names in this file: its name, or the first words of it."""
    if path.name == "kernels.h":
        return ("k_",)
    words = path.stem.split("_")
    own = tuple("_".join(words[:n]) + "_" for n in range(1, len(words) + 1))
    return own + ("k_",) if "kernels" in path.parts else own


def declared_functions(text):
    """(line, name) of the functions declared at the left margin of a header."""
    text = re.sub(r"__attribute__\(\(.*?\)\)\)?[ \t]*", "", text)
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    for match in re.finditer(r"^(?!typedef|static|enum)[A-Za-z_]\w*(?:[\s*]+\w+)*?[\s*]+([A-Za-z_]\w*)\s*\(",
            text, flags=re.M):
        yield text.count("\n", 0, match.start()) + 1, match[1]


def public_names(root):
    """A public function is named <file>_<verb>; in kernels/ also k_<operation>."""
    findings = []
    for path in files(root, (".h", ".cuh")):
        name = relative(root, path)
        if name.startswith("tests/"):
            continue
        allowed = prefixes_of(path.relative_to(root))
        for number, function in declared_functions(path.read_text(encoding="utf-8")):
            if not function.startswith(allowed):
                findings.append(f"{name}:{number}: {function} begins with none of {', '.join(allowed)}")
    return findings


def cycles(edges):
    """The groups of nodes that reach each other, by Tarjan's algorithm."""
    index, low, stack, groups = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            group = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return groups


def include_cycles(root):
    """No two files (a source and its header count as one) include each other, directly or through others."""
    edges = {}
    for path in files(root, C_ENDINGS):
        name = relative(root, path)
        if name.startswith("tests/"):
            continue
        own = name.rsplit(".", 1)[0]
        included = {match[2].rsplit(".", 1)[0] for match in map(INCLUDE.match, lines(path)) if match and match[1] == '"'}
        edges.setdefault(own, set()).update(included - {own})
    return [" ".join(group) + ": include each other" for group in cycles(edges)]


def room_cycles(root):
    """The table of rooms itself has no cycle."""
    return [" ".join(group) + ": include each other"
        for group in cycles({room: known - {room} for room, known in ROOMS.items()})]


RULES = [includes, no_cuda_switch, no_grab_bags, layout, function_sizes, nothing_unfinished, header_comments,
    public_names, include_cycles, room_cycles]
