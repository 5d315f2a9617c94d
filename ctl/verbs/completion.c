/*
 * gpt2ctl completion. The scripts are thin: they ask gpt2ctl itself what may stand at the cursor
 * (complete.h), so that they need no change when the verb table grows.
 */
#include "ctl/verbs/completion.h"

#include <errno.h>
#include <string.h>

#include "ctl/arguments.h"
#include "ctl/complete.h"
#include "ctl/print/output.h"
#include "ctl/verbs/verb.h"

/*
 * bash breaks words at "=" too: they are put together again, and what stands before the last break
 * is taken off the candidates.
 */
static const char bash[] =
	"# bash completion of gpt2ctl\n"
	"_gpt2ctl()\n"
	"{\n"
	"\tlocal program=gpt2ctl words=() word joined= fixed i\n"
	"\ttype -P \"$1\" >/dev/null && program=$1\n"
	"\tfor ((i = 1; i <= COMP_CWORD; i++)); do\n"
	"\t\tword=${COMP_WORDS[i]}\n"
	"\t\tif [[ ${#words[@]} -gt 0 && ( $word == = || -n $joined ) ]]; then\n"
	"\t\t\twords[-1]+=$word\n"
	"\t\t\t[[ $word == = ]] && joined=1 || joined=\n"
	"\t\telse\n"
	"\t\t\twords+=(\"$word\")\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tword=${COMP_WORDS[COMP_CWORD]}\n"
	"\t[[ $word == = ]] && word=\n"
	"\tfixed=${words[-1]%\"$word\"}\n"
	"\tCOMPREPLY=()\n"
	"\twhile IFS=$'\\t' read -r word _; do\n"
	"\t\tcase $word in\n"
	"\t\t:files) compopt -o default ;;\n"
	"\t\t:dirs) compopt -o dirnames ;;\n"
	"\t\t*=) compopt -o nospace; COMPREPLY+=(\"${word#\"$fixed\"}\") ;;\n"
	"\t\t*) COMPREPLY+=(\"${word#\"$fixed\"}\") ;;\n"
	"\t\tesac\n"
	"\tdone < <(\"$program\" completion --words -- \"${words[@]}\" 2>/dev/null)\n"
	"}\n"
	"complete -F _gpt2ctl gpt2ctl\n";

static const char zsh[] =
	"#compdef gpt2ctl\n"
	"# zsh completion of gpt2ctl\n"
	"_gpt2ctl()\n"
	"{\n"
	"\tlocal line word about program=gpt2ctl\n"
	"\tlocal -a typed plain plain_about open\n"
	"\ttyped=(\"${(@Q)words[2,CURRENT]}\")\n"
	"\twhence -p -- \"${(Q)words[1]}\" >/dev/null && program=${(Q)words[1]}\n"
	"\tfor line in \"${(@f)$(\"$program\" completion --words -- \"${typed[@]}\" "
	"2>/dev/null)}\"; do\n"
	"\t\tword=${line%%$'\\t'*}\n"
	"\t\tcase $word in\n"
	"\t\t:files) _files ;;\n"
	"\t\t:dirs) _files -/ ;;\n"
	"\t\t*=) open+=(\"$word\") ;;\n"
	"\t\t?*)\n"
	"\t\t\tabout=${line#*$'\\t'}\n"
	"\t\t\tplain+=(\"$word\"); plain_about+=(\"$word${about:+  -- $about}\") ;;\n"
	"\t\tesac\n"
	"\tdone\n"
	"\t(( $#open )) && compadd -S '' -a open\n"
	"\t(( $#plain )) && compadd -l -d plain_about -a plain\n"
	"}\n"
	"if [ \"$funcstack[1]\" = _gpt2ctl ]; then\n"
	"\t_gpt2ctl \"$@\"\n"
	"else\n"
	"\tcompdef _gpt2ctl gpt2ctl\n"
	"fi\n";

static const char fish[] =
	"# fish completion of gpt2ctl\n"
	"function __gpt2ctl_words\n"
	"\tset -l typed (commandline -opc) (commandline -ct)\"\"\n"
	"\tset -l program gpt2ctl\n"
	"\ttype -q -f -- $typed[1]; and set program $typed[1]\n"
	"\tfor line in ($program completion --words -- $typed[2..-1] 2>/dev/null)\n"
	"\t\tswitch $line\n"
	"\t\t\tcase ':files'\n"
	"\t\t\t\t__fish_complete_path $typed[-1]\n"
	"\t\t\tcase ':dirs'\n"
	"\t\t\t\t__fish_complete_directories $typed[-1]\n"
	"\t\t\tcase '*'\n"
	"\t\t\t\techo $line\n"
	"\t\tend\n"
	"\tend\n"
	"end\n"
	"complete -c gpt2ctl -f -k -a '(__gpt2ctl_words)'\n";

static const struct {
	const char *shell, *script;
} scripts[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

int completion_print(const char *shell, FILE *out)
{
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		if (strcmp(scripts[i].shell, shell) == 0) {
			fputs(scripts[i].script, out);
			return 0;
		}
	}
	return -EINVAL;
}

static const struct option_row options[] = {
	{"words", 0, OPTION_FLAG, NULL, 0, 0,
		"print what may stand for the last of the words given instead of a shell, a line "
		"each; the scripts call this, see COMPLETION in gpt2ctl(1)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct ctl_error e = {0};

	if (arguments_has(args, "words")) {
		complete_words(ctl, args->words, args->n_words, ctl->out.file);
		return CTL_OK;
	}
	if (args->n_words != 1 || completion_print(args->words[0], ctl->out.file) != 0) {
		ctl_error_set(&e, CTL_USAGE, "completion: %.80s: one of bash, zsh, fish is needed",
			args->n_words > 0 ? args->words[args->n_words == 1 ? 0 : 1] : "nothing");
		return ctl_fail(ctl, &e);
	}
	return CTL_OK;
}

const struct verb verb_completion = {
	.name = "completion",
	.args = "bash|zsh|fish",
	.max_args = -1,
	.summary = "print a script with which a shell completes gpt2ctl's command line",
	.text = "Verbs, options, keys of a spec after --set, files, and the runs of the daemon are "
		"completed. Installed with gpt2d the scripts stand where the shells look for them; "
		"else put into ~/.bashrc: eval \"$(gpt2ctl completion bash)\"; into ~/.zshrc, "
		"after compinit: eval \"$(gpt2ctl completion zsh)\"; into "
		"~/.config/fish/config.fish: gpt2ctl completion fish | source.",
	.options = options,
	.run = run,
};
