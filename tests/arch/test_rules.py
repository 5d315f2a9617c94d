"""Each rule finds violations, and accepts correct code."""

import pytest

import rules

GOOD_HEADER = """/*
 * plan.h: which range travels when.
 */
#ifndef GPT2D_ENGINE_PLAN_H
#define GPT2D_ENGINE_PLAN_H

#include <stdint.h>

#include "kernels/kernels.h"

struct plan {
	int64_t n;
};

int plan_make(struct plan *out);
static inline int plan_twice(int x)
{
	return 2 * x;
}

#endif
"""


def tree(root, **contents):
    """Files from names with __ for / and _DOT_ for a dot."""
    (root / "kernels").mkdir()
    (root / "kernels/kernels.h").write_text("/* kernels.h: operations */\n#ifndef GPT2D_KERNELS_KERNELS_H\n"
        "#define GPT2D_KERNELS_KERNELS_H\nvoid k_add(void);\n#endif\n")
    for name, text in contents.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_good_tree_passes_every_rule(tmp_path):
    root = tree(tmp_path, engine__plan_DOT_h=GOOD_HEADER, proto__spec_DOT_c="#include <jsmn.h>\n")
    for rule in rules.RULES:
        assert rule(root) == [], rule.__name__


@pytest.mark.parametrize("folder, include, said", [
    ("daemon", '"engine/plan.h"', "daemon must not know engine"),
    ("ctl", '"daemon/queue.h"', "ctl must not know daemon"),
    ("proto", '"kernels/kernels.h"', "proto must not know kernels"),
    ("kernels/cpu", '"engine/plan.h"', "kernels/cpu must not know engine"),
    ("kernels/cpu", '"kernels/cuda/device.h"', "kernels/cpu must not know kernels/cuda"),
    ("engine", '"kernels/cpu/gemm.h"', "engine must not know kernels/cpu"),
    ("engine", '"plan.h"', "not written from the root"),
    ("engine", '"../engine/plan.h"', "not written from the root"),
    ("engine", '"engine/none.h"', "does not exist"),
    ("daemon", "<ucp/api/ucp.h>", "daemon must not know <ucp/api/ucp.h>"),
    ("daemon", "<cuda_runtime.h>", "daemon must not know <cuda_runtime.h>"),
    ("engine", "<sqlite3.h>", "engine must not know <sqlite3.h>"),
    ("engine", "<cuda_runtime.h>", "engine must not know <cuda_runtime.h>"),
    ("engine", "<cblas.h>", "engine must not know <cblas.h>"),
    ("proto", "<event2/event.h>", "proto must not know <event2/event.h>"),
    ("ctl", "<curl/curl.h>", "in no row"),
])
def test_include_outside_the_table(tmp_path, folder, include, said):
    root = tree(tmp_path, engine__plan_DOT_h=GOOD_HEADER, daemon__queue_DOT_h="\n",
        kernels__cpu__gemm_DOT_h="\n", kernels__cuda__device_DOT_h="\n")
    path = root / folder / "sample.c"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#include {include}\n")
    findings = rules.includes(root)
    assert len(findings) == 1 and said in findings[0] and f"{folder}/sample.c:1" in findings[0]


@pytest.mark.parametrize("line", ["#ifdef CUDA", "#if defined(GPT2D_CUDA)", "# ifndef HAVE_CUDA", "#ifdef CPU"])
def test_cuda_switch(tmp_path, line):
    root = tree(tmp_path, engine__step_DOT_c=f"{line}\n#endif\n", kernels__cuda__x_DOT_cu=f"{line}\n#endif\n")
    findings = rules.no_cuda_switch(root)
    assert len(findings) == 1 and findings[0].startswith("engine/step.c:1")


@pytest.mark.parametrize("name, text", [
    ("engine__util_DOT_c", "\n"),
    ("daemon__common_DOT_h", "\n"),
    ("engine__common__list_DOT_c", "\n"),
    ("daemon__daemon_DOT_h", '/* x */\n#ifndef A\n#define A\n#include "a/b.h"\n#include "a/c.h"\n#endif\n'),
    ("daemon__gpt2d_DOT_h", "".join(f'#include "daemon/f{n}.h"\n' for n in range(10)) + "int x(void);\n"),
])
def test_grab_bag(tmp_path, name, text):
    assert len(rules.no_grab_bags(tree(tmp_path, **{name: text}))) == 1


@pytest.mark.parametrize("text, said", [
    ("\t\t" + "x" * 85 + "\n", "101 columns"),
    ("int x; \n", "blanks at the end"),
    ("    int x;\n", "indented by spaces"),
    ("\t        int x;\n", "indented by spaces"),
    ("int x;", "no newline"),
    ("\n" * 901, "901 lines"),
])
def test_layout(tmp_path, text, said):
    findings = rules.layout(tree(tmp_path, engine__step_DOT_c=text))
    assert len(findings) == 1 and said in findings[0]


@pytest.mark.parametrize("n, found", [(60, 0), (61, 1)])
def test_function_size(tmp_path, n, found):
    text = "struct a {\n\tint x;\n};\n\nstatic int\nf(int x)\n{\n" + "\tx++;\n" * n + "}\n"
    findings = rules.function_sizes(tree(tmp_path, engine__step_DOT_c=text, kernels__cuda__x_DOT_cu=text))
    assert len(findings) == found and all(finding.startswith("engine/step.c:7: 61 lines") for finding in findings)


def test_unfinished(tmp_path):
    root = tree(tmp_path, engine__step_DOT_c="/* TO" + "DO: later */\n", tests__a_DOT_py="# FIX" + "ME\n")
    assert len(rules.nothing_unfinished(root)) == 2


@pytest.mark.parametrize("old, new, said", [
    ("plan.h: which", "Which", "does not begin"),
    ("plan.h: which", "plans.h: which", "does not begin"),
    ("GPT2D_ENGINE_PLAN_H", "PLAN_H", "no guard"),
])
def test_header_comment(tmp_path, old, new, said):
    findings = rules.header_comments(tree(tmp_path, engine__plan_DOT_h=GOOD_HEADER.replace(old, new)))
    assert len(findings) == 1 and said in findings[0]


@pytest.mark.parametrize("declaration", [
    "int make_plan(struct plan *out);", "struct plan *bucket(int a,\n\tint b);",
    "const char *const *names(void);", "void\nplanmake(void);",
    "int log_at(const char *format, ...)\n\t__attribute__((format(printf, 1, 2)));",
    "__attribute__((format(printf, 1, 2))) int log_at(const char *format, ...);",
])
def test_public_name(tmp_path, declaration):
    text = GOOD_HEADER.replace("int plan_make(struct plan *out);", declaration)
    assert len(rules.public_names(tree(tmp_path, engine__plan_DOT_h=text))) == 1


def test_public_name_of_kernels(tmp_path):
    root = tree(tmp_path, kernels__cpu__gemm_DOT_h="void gemm_run(void);\nvoid k_gemm(void);\nvoid run(void);\n")
    findings = rules.public_names(root)
    assert len(findings) == 1 and ": run begins" in findings[0]


def test_public_name_of_a_part(tmp_path):
    root = tree(tmp_path, proto__spec_table_DOT_h="int spec_rows(void);\nint spec_table_find(void);\nint table_x(void);\n")
    findings = rules.public_names(root)
    assert len(findings) == 1 and "table_x" in findings[0]


def test_includes_in_a_circle(tmp_path):
    """Through three files and through sources; a source and its header count as one."""
    root = tree(tmp_path, daemon__a_DOT_c='#include "daemon/b.h"\n', daemon__b_DOT_h='#include "daemon/c.h"\n',
        daemon__c_DOT_c='#include "daemon/a.h"\n', daemon__a_DOT_h="\n", daemon__c_DOT_h="\n",
        daemon__d_DOT_c='#include "daemon/d.h"\n#include "daemon/a.h"\n', daemon__d_DOT_h="\n")
    assert rules.include_cycles(root) == ["daemon/a daemon/b daemon/c: include each other"]


def test_table_of_rooms_in_a_circle(monkeypatch):
    monkeypatch.setitem(rules.ROOMS, "proto", {"proto", "proto/spec"})
    assert rules.room_cycles("") == ["proto proto/schema proto/spec: include each other"]


@pytest.mark.parametrize("name, room", [("daemon/runs/queue.h", "daemon/runs"), ("daemon/gpt2d.c", "daemon"),
    ("kernels/cuda/gemm/ring.cuh", "kernels/cuda"), ("tests/unit/x.c", "tests"), ("README.md", "")])
def test_room_of_a_file(name, room):
    assert rules.room_of(name) == room
