#include "engine/check/check_turn.h"

#define INT(value) ((json_int_t)(value))

static json_t *scanned_json(const struct dataset_scanned *s)
{
	return json_pack("{sI sI sI sI sI sI sI sI sI}", "dev", INT(s->dev), "ino", INT(s->ino),
		"bytes", INT(s->file_bytes), "modified_s", INT(s->modified.tv_sec), "modified_ns",
		INT(s->modified.tv_nsec), "changed_s", INT(s->changed.tv_sec), "changed_ns",
		INT(s->changed.tv_nsec), "vocab", INT(s->vocab), "tokens", INT(s->tokens));
}

json_t *check_turn_json(const struct check_turn *turn)
{
	return json_pack("[o o]", scanned_json(&turn->scanned[0]), scanned_json(&turn->scanned[1]));
}

static struct dataset_scanned read_scanned(const json_t *json)
{
	json_int_t dev, ino, bytes, m_s, m_ns, c_s, c_ns, vocab, tokens;

	if (json_unpack((json_t *)json, "{sI sI sI sI sI sI sI sI sI}", "dev", &dev, "ino", &ino,
		    "bytes", &bytes, "modified_s", &m_s, "modified_ns", &m_ns, "changed_s", &c_s,
		    "changed_ns", &c_ns, "vocab", &vocab, "tokens", &tokens) < 0)
		return (struct dataset_scanned){0};
	return (struct dataset_scanned){
		.dev = (dev_t)dev,
		.ino = (ino_t)ino,
		.file_bytes = bytes,
		.modified = {.tv_sec = m_s, .tv_nsec = m_ns},
		.changed = {.tv_sec = c_s, .tv_nsec = c_ns},
		.vocab = vocab,
		.tokens = tokens,
	};
}

void check_turn_read(struct check_turn *turn, const json_t *json)
{
	for (size_t i = 0; i < 2; i++)
		turn->scanned[i] = read_scanned(json_array_get(json, i));
}
