/*
 * Rows: a database that SQLite finds nothing wrong with, whose rows hold what gpt2d never wrote.
 *
 * Input: lines of a digit (table), a digit (row), a letter (column), a letter (i an integer, t a
 * text, b a blob, n null, d: the row is deleted, c: it is written twice) and the value.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/house.h"
#include "tests/fuzz/state.h"

enum { LINES_MAX = 32 };

struct table {
	const char *name, *row; /* what counts its rows */
	const char *columns[17];
};

static const struct table tables[] = {
	{"runs", "id",
		{"id", "name", "uid", "state", "reason", "spec", "spec_sha256", "checks", "gpus",
			"segments", "segments_done", "attempt", "restart", "timeout_s",
			"submitted_ns", "started_ns", "ended_ns"}},
	{"segments", "run",
		{"run", "segment", "block", "position", "arm", "state", "reason", "started_ns",
			"ended_ns", "dir", "summary"}},
	{"transitions", "rowid", {"run", "at_ns", "state", "reason"}},
	{"schema", "rowid", {"version"}},
};

static const char *column_of(const struct table *table, char letter)
{
	unsigned n = 0;

	while (n < 17 && table->columns[n] != NULL)
		n++;
	return table->columns[(unsigned)(letter - 'a') % n];
}

static void bind(sqlite3_stmt *stmt, char kind, const char *value, size_t n)
{
	char text[32];

	if (kind == 'i') {
		snprintf(text, sizeof(text), "%.*s", (int)(n < 31 ? n : 31), value);
		sqlite3_bind_int64(stmt, 1, strtoll(text, NULL, 10));
	} else if (kind == 't') {
		sqlite3_bind_text(stmt, 1, value, (int)n, SQLITE_STATIC);
	} else if (kind == 'b') {
		sqlite3_bind_blob(stmt, 1, value, (int)n, SQLITE_STATIC);
	}
}

static void spoil(sqlite3 *db, const char *line, size_t n)
{
	const struct table *table;
	sqlite3_stmt *stmt = NULL;
	char sql[256];

	if (n < 4)
		return;
	table = &tables[(unsigned char)line[0] % (sizeof(tables) / sizeof(tables[0]))];
	if (line[3] == 'd')
		snprintf(sql, sizeof(sql), "delete from %s where %s = ?2", table->name, table->row);
	else if (line[3] == 'c')
		snprintf(sql, sizeof(sql), "insert into transitions select run + ?1, at_ns, state,"
			" reason from transitions where rowid = ?2");
	else
		snprintf(sql, sizeof(sql), "update %s set %s = ?1 where %s = ?2", table->name,
			column_of(table, line[2]), table->row);
	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK) {
		bind(stmt, line[3], line + 4, n - 4);
		sqlite3_bind_int(stmt, 2, line[1] - '0');
		sqlite3_step(stmt); /* what the schema forbids is not written */
	}
	sqlite3_finalize(stmt);
}

static void spoil_all(const uint8_t *data, size_t size)
{
	const char *at = (const char *)data, *end = at + size, *newline;
	char path[128];
	sqlite3 *db = NULL;

	snprintf(path, sizeof(path), "%s/state/gpt2d.db", house_folder());
	FUZZ_MUST(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK);
	sqlite3_exec(db, "pragma foreign_keys = off; pragma synchronous = off", NULL, NULL, NULL);
	for (int i = 0; i < LINES_MAX && at < end; i++) {
		newline = memchr(at, '\n', (size_t)(end - at));
		if (newline == NULL)
			newline = end;
		spoil(db, at, (size_t)(newline - at));
		at = newline < end ? newline + 1 : end;
	}
	FUZZ_MUST(sqlite3_close(db) == SQLITE_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	state_put(state_of_stopped());
	spoil_all(data, size);
	state_ask();
	house_clear();
	return 0;
}
