/* version.h: what this build calls itself in hello, --version and artifacts. */
#ifndef GPT2D_PROTO_VERSION_H
#define GPT2D_PROTO_VERSION_H

#define VERSION_RELEASE "0.1.0"

/* git describe of the sources, or the release when there is no git. */
extern const char version_build[];

#endif
