#include "ctl/verbs/data_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "ctl/data/vocabulary.h"
#include "ctl/link/interrupt.h"
#include "ctl/print/format.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/text.h"

/* Standard input can be read once. */
static int check_stdin(const struct data_inputs *in, struct ctl_error *e)
{
	int n = 0;

	for (size_t i = 0; i < in->n; i++)
		n += strcmp(in->names[i], "-") == 0;
	if (n <= 1)
		return 0;
	return ctl_error_set(e, CTL_USAGE,
		"%s: \"-\" was given %d times; standard input can be read once", in->verb, n);
}

/* Fraction of the inputs' bytes, or of the requested documents; below 0: not known. */
static double fraction_done(const struct data_inputs *in)
{
	const int64_t all = documents_bytes_all(in->documents);
	const double bytes =
		all > 0 ? (double)documents_bytes_read(in->documents) / (double)all : -1.0;
	const double documents =
		in->limit > 0 ? (double)documents_count(in->documents) / (double)in->limit : -1.0;

	return bytes > documents ? bytes : documents;
}

static int take(void *of, const struct encoder_part *part, struct ctl_error *e)
{
	struct data_inputs *in = of;
	const int64_t now_ns = clock_mono_ns();
	const struct progress_work work = {.name = in->name,
		.unit = "tok",
		.items = in->n_tokens,
		.fraction = fraction_done(in),
		.seconds = (double)(now_ns - in->begun_ns) / 1e9};

	if (interrupt_seen())
		return ctl_error_set(e, CTL_CANCELLED, "interrupted");
	progress_show_work(&in->progress, &work, now_ns);
	in->sums[part->input].tokens += (int64_t)part->n - part->separators;
	in->sums[part->input].documents += part->documents;
	in->sums[part->input].replaced += part->replaced;
	in->n_tokens += (int64_t)part->n;
	if (part->largest > in->largest)
		in->largest = part->largest;
	return in->take(in->of, part->ids, part->n, e);
}

int data_inputs_open(
	struct data_inputs *in, const struct options *args, size_t first, struct ctl_error *e)
{
	const char *field = options_string(args, "field", NULL);

	in->names = args->words + first;
	in->n = args->n_words - first;
	in->largest = -1;
	in->limit = options_int(args, "limit-docs", 0);
	if (check_stdin(in, e) != 0 ||
		tokenizer_open(&in->tokenizer,
			options_string(args, "tokenizer", in->fallback ? in->fallback : "bytes"),
			options_string(args, "vocab", NULL), e) != 0)
		return e->exit;
	in->documents =
		documents_open(in->names, in->n, field != NULL, in->limit, in->tokenizer.kind);
	in->sums = memory_zeroed(in->n, sizeof(*in->sums));
	in->job = (struct encoder_job){.tokenizer = &in->tokenizer,
		.documents = in->documents,
		.field = field ? field : "text",
		.threads = (int)options_int(args, "threads", encoder_threads()),
		.take = take,
		.of = in};
	return 0;
}

int data_inputs_encode(struct data_inputs *in, const struct term *term, struct ctl_error *e)
{
	int exit;

	progress_init(&in->progress, term);
	in->begun_ns = clock_mono_ns();
	exit = encoder_run(&in->job, e);
	progress_clear(&in->progress);
	return exit;
}

void data_inputs_finish(struct data_inputs *in)
{
	documents_close(in->documents);
	tokenizer_close(&in->tokenizer);
	free(in->sums);
	in->documents = NULL;
	in->sums = NULL;
}

json_t *data_inputs_json(const struct data_inputs *in)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < in->n; i++) {
		const char *name = strcmp(in->names[i], "-") == 0 ? "stdin" : in->names[i];

		json_array_append_new(rows,
			json_pack("{s:o, s:I, s:I, s:I}", "path", text_json(name), "bytes",
				(json_int_t)documents_text_bytes(in->documents, i), "documents",
				(json_int_t)in->sums[i].documents, "tokens",
				(json_int_t)in->sums[i].tokens));
	}
	return rows;
}

void data_inputs_note(struct output *o, const struct data_inputs *in)
{
	const struct tokenizer *t = &in->tokenizer;
	char count[FORMAT_BYTES], name[4096];

	for (size_t i = 0; i < in->n; i++) {
		if (in->sums[i].replaced == 0)
			continue;
		term_clean(in->names[i], name, sizeof(name));
		fprintf(o->err.file,
			"gpt2ctl: note: %s: not all UTF-8; places that became U+FFFD: %s\n",
			strcmp(name, "-") == 0 ? "stdin" : name,
			format_count(in->sums[i].replaced, count));
	}
	if (t->source && t->vocab_size != VOCABULARY_GPT2_SIZE)
		fprintf(o->err.file,
			"gpt2ctl: note: %s has %lld tokens, GPT-2's own vocabulary has %d\n",
			t->source, (long long)t->vocab_size, VOCABULARY_GPT2_SIZE);
}
