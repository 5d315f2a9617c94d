#include "tests/fuzz/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/house.h"
#include "tests/fuzz/links.h"

#define SUBMIT                                                                                     \
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"submit\",\"params\":{\"spec\":{\"name\":"      \
	"\"run\",\"model\":\"nano\",\"data\":{\"kind\":\"synthetic\"},\"seq_len\":8,"              \
	"\"train_micro_batch_size_per_gpu\":1,\"gradient_accumulation_steps\":1,\"restart\":"      \
	"true,\"work\":{\"optimizer_steps\":2,\"warmup_steps\":0}}}}\n"
#define ASK(method, params)                                                                        \
	"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"" method "\",\"params\":" params "}\n"
#define SEGMENT(method, run)                                                                       \
	"{\"jsonrpc\":\"2.0\",\"method\":\"segment." method "\",\"params\":{\"run\":" run          \
	",\"segment\":0,\"summary\":{\"tokens_total\":32}}}"

static void hear(struct house *h, const char *line)
{
	house_hear(h, 0, line, strlen(line));
}

static void say(struct house *h, const char *line)
{
	links_say(0, line, strlen(line));
	house_settle(h);
}

static const char *path_of(enum state_file file)
{
	static const char *const names[] = {"gpt2d.db", "gpt2d.db-wal"};
	static char path[128];

	snprintf(path, sizeof(path), "%s/state/%s", house_folder(), names[file]);
	return path;
}

static void take(struct state_copy files[STATE_FILES])
{
	for (int i = 0; i < STATE_FILES; i++) {
		FILE *f = fopen(path_of(i), "rb");

		files[i] = (struct state_copy){NULL, 0};
		if (f == NULL)
			continue;
		files[i].bytes = malloc(1 << 22);
		FUZZ_MUST(files[i].bytes != NULL);
		files[i].n = fread(files[i].bytes, 1, 1 << 22, f);
		fclose(f);
	}
}

static struct house *live(void)
{
	struct house *h;

	house_clear();
	FUZZ_MUST(house_open(&h) == 0);
	for (int i = 0; i < 3; i++)
		hear(h, SUBMIT);
	say(h, SEGMENT("started", "1"));
	say(h, SEGMENT("trained", "1"));
	say(h, SEGMENT("done", "1"));
	say(h, SEGMENT("started", "2"));
	return h;
}

const struct state_copy *state_of_killed(void)
{
	static struct state_copy files[STATE_FILES];

	if (files[STATE_DB].bytes == NULL) {
		struct house *h = live();

		take(files);
		house_close(h);
		FUZZ_MUST(files[STATE_DB].bytes != NULL && files[STATE_WAL].bytes != NULL);
	}
	return files;
}

const struct state_copy *state_of_stopped(void)
{
	static struct state_copy files[STATE_FILES];

	if (files[STATE_DB].bytes == NULL) {
		house_close(live());
		take(files);
		FUZZ_MUST(files[STATE_DB].bytes != NULL);
	}
	return files;
}

static void make_folder(const char *below)
{
	char path[128];

	snprintf(path, sizeof(path), "%s%s", house_folder(), below);
	FUZZ_MUST(mkdir(path, 0700) == 0 || errno == EEXIST);
}

void state_put(const struct state_copy files[STATE_FILES])
{
	house_clear();
	make_folder("");
	make_folder("/state");
	for (int i = 0; i < STATE_FILES; i++) {
		FILE *f;

		if (files[i].bytes == NULL)
			continue;
		f = fopen(path_of(i), "wb");
		FUZZ_MUST(f != NULL && fwrite(files[i].bytes, 1, files[i].n, f) == files[i].n);
		FUZZ_MUST(fclose(f) == 0);
	}
}

void state_ask(void)
{
	static const char *const questions[] = {
		ASK("list", "{}"),
		ASK("list", "{\"newest\":true,\"limit\":1}"),
		ASK("list", "{\"state\":\"done\"}"),
		ASK("show", "{\"id\":1}"),
		ASK("show", "{\"id\":2,\"limit\":1}"),
		ASK("show", "{\"id\":3}"),
		ASK("follow", "{\"id\":1}"),
		ASK("follow", "{\"id\":3}"),
		ASK("status", "{}"),
		SUBMIT,
		ASK("cancel", "{\"id\":1}"),
		ASK("cancel", "{\"id\":3}"),
		ASK("list", "{}"),
	};
	struct house *h;

	if (house_open(&h) < 0)
		return;
	for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++)
		hear(h, questions[i]);
	say(h, SEGMENT("started", "2"));
	say(h, SEGMENT("done", "2"));
	house_close(h);
}
