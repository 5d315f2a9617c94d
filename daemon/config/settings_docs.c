/*
 * gpt2d-settings-docs example: prints etc/gpt2d.conf. gpt2d-settings-docs man FRAME: prints the
 * manual FRAME with the settings in place of its line @SETTINGS@. Used by the build.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/config/settings.h"
#include "proto/schema/man_page.h"

enum { COLUMNS = 78 };

/* text as a comment, broken at blanks. */
static void print_comment(FILE *out, const char *text)
{
	size_t column = 0;

	while (*text != '\0') {
		size_t n = strcspn(text, " ");

		if (column > 0 && column + 1 + n > COLUMNS) {
			fputc('\n', out);
			column = 0;
		}
		column += (size_t)fprintf(out, "%s%.*s", column ? " " : "# ", (int)n, text);
		text += n;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

/* The service's file: only the one setting that is required is not a comment. */
static const char *example_value(const struct settings_row *row, char *text, size_t bytes)
{
	static const struct {
		const char *name, *value;
	} values[] = {
		{"socket", "/run/gpt2d/gpt2d.sock"},
		{"socket_group", "gpt2d"},
		{"socket_mode", "0660"},
		{"admin_group", "gpt2d-admin"},
		{"state_dir", "/var/lib/gpt2d"},
		{"device", "cuda"},
		{"engine", "/usr/libexec/gpt2d/gpt2-engine-cuda"},
		{"data_roots", "/srv/data \"/home/some one/data\""},
		{"checkpoint_roots", "/srv/checkpoints"},
		{"log_file", "/var/log/gpt2d.log"},
		{"metrics_file", "/var/lib/prometheus/node-exporter/gpt2d.prom"},
		{"listen", "10.0.0.1:7290"},
		{"join", "10.0.0.1:7290"},
		{"node_id", "1"},
		{"key_file", "/etc/gpt2d/key"},
		{"interface", "eth0"},
		{"link_interface", "eth0"},
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		if (strcmp(values[i].name, row->name) == 0)
			return values[i].value;
	settings_format_standard(row, text, bytes);
	return text;
}

static void print_example(FILE *out)
{
	char text[256], line[1024];

	fputs("# gpt2d.conf: settings of gpt2d as a service, /etc/gpt2d/gpt2d.conf. For a\n"
	      "# user's own daemon: ~/.config/gpt2d/gpt2d.conf, and device = auto.\n"
	      "# `gpt2d -n` checks it; see gpt2d.conf(5). Generated from the table in\n"
	      "# daemon/config/settings_table.c by `ninja -C build example-conf`.\n",
		out);
	for (size_t i = 0; i < settings_n_rows; i++) {
		const struct settings_row *row = &settings_rows[i];

		settings_format_range(row, text, sizeof(text));
		snprintf(line, sizeof(line), "%s (%s)", row->help, text);
		fputc('\n', out);
		print_comment(out, line);
		settings_format_standard(row, text, sizeof(text));
		snprintf(line, sizeof(line), "default: %s", text);
		if (row->unset != NULL)
			print_comment(out, line);
		fprintf(out, "%s%s = %s\n", strcmp(row->name, "device") == 0 ? "" : "#", row->name,
			example_value(row, text, sizeof(text)));
	}
}

static void print_sentence(FILE *out, const char *before, const char *text)
{
	fputs(before, out);
	man_page_text(out, text);
	fputs(".\n", out);
}

static void print_man(FILE *out)
{
	char text[256], sentence[512];

	for (size_t i = 0; i < settings_n_rows; i++) {
		const struct settings_row *row = &settings_rows[i];

		settings_format_range(row, text, sizeof(text));
		fprintf(out, ".It Cm %s No = Ar ", row->name);
		man_page_text(out, text);
		fputc('\n', out);
		snprintf(sentence, sizeof(sentence), "%s", row->help);
		if (sentence[0] >= 'a' && sentence[0] <= 'z')
			sentence[0] = (char)(sentence[0] - 'a' + 'A');
		print_sentence(out, "", sentence);
		settings_format_standard(row, text, sizeof(text));
		if (text[0] != '\0')
			print_sentence(out, "Default: ", text);
		if (row->reload)
			fputs("Taken over on\n.Dv SIGHUP .\n", out);
		fprintf(out, "%s", row->manual ? row->manual : "");
	}
}

static const struct man_page_part parts[] = {
	{"SETTINGS", print_man, NULL},
	{NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc == 2 && strcmp(argv[1], "example") == 0) {
		print_example(stdout);
	} else if (argc == 3 && strcmp(argv[1], "man") == 0) {
		failed = man_page_print(argv[2], parts, stdout) != 0;
	} else {
		fprintf(stderr, "usage: gpt2d-settings-docs example | man FRAME\n");
		return 2;
	}
	return failed || fflush(stdout) || ferror(stdout);
}
