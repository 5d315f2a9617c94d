/* version.h: the names of this build in hello, --version and artifacts. */
#ifndef GPT2D_PROTO_VERSION_H
#define GPT2D_PROTO_VERSION_H

/* Text: the version of the project in meson.build, which passes it. */
#ifndef VERSION_RELEASE
#error "VERSION_RELEASE is not defined: the build system passes it"
#endif

/* The option build_id, else git describe of the sources, else the release. */
extern const char version_build[];

#endif
