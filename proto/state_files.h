/* state_files.h: the names of gpt2d's files in the state directory. */
#ifndef GPT2D_PROTO_STATE_FILES_H
#define GPT2D_PROTO_STATE_FILES_H

#define STATE_DATABASE "gpt2d.db"    /* and beside it STATE_DATABASE.lock, and SQLite's own files */
#define STATE_RUNS     "runs"        /* run.h: run_dir */
#define STATE_TRASH    "runs/.trash" /* trash.h */
#define STATE_LINK     "listening"   /* of a leader of several nodes: its address */
#define STATE_TUNING   "tuning"      /* the engine's: engine/train/tuning.h */

#endif
