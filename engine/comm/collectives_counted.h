/* collectives_counted.h: the fields of struct collectives_bytes, to count by. */
#ifndef GPT2D_ENGINE_COMM_COLLECTIVES_COUNTED_H
#define GPT2D_ENGINE_COMM_COLLECTIVES_COUNTED_H

enum collectives_counted {
	COUNTED_REDUCE_SCATTER,
	COUNTED_ALL_GATHER,
	COUNTED_ALL_REDUCE,
	COUNTED_OTHER,
	COUNTED,
};

#endif
