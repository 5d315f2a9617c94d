/*
 * tls.h: TLS 1.3 with a pre-shared key and no certificates (RFC 8446, section 4.2.11), for the link
 * between the daemons of several nodes. The key is HKDF-SHA256 (RFC 5869) of the key file. The
 * identity "gpt2d/1/CLUSTER/FROM/TO" travels in clear text and proves nothing by itself: the key
 * binds it to the handshake.
 */
#ifndef GPT2D_DAEMON_NODES_TLS_H
#define GPT2D_DAEMON_NODES_TLS_H

#include <stddef.h>

struct ssl_st;
struct tls;

struct tls_options {
	const char *key_file, *cluster;
	int node;  /* this node */
	int nodes; /* a server accepts members 1 to nodes - 1; 0: this is a client */
};

/* 0, or a negative errno with error. */
int tls_create(
	const struct tls_options *options, struct tls **out, char *error, size_t error_bytes);
void tls_destroy(struct tls *t); /* takes NULL */

/* A new connection's session, for a bufferevent to own; NULL: OpenSSL cannot create one. */
struct ssl_st *tls_session(struct tls *t);
/*
 * After the handshake: the peer's node ID, which the handshake proved; -1 if no pre-shared key was
 * used, as with any certificate.
 */
int tls_peer(const struct ssl_st *ssl);
/* An OpenSSL error code as a text for this link. */
void tls_error(unsigned long code, char *out, size_t out_bytes);

/* Checks a key file as tls_create does: 0, or -EINVAL with error. */
int tls_check_key(const char *key_file, char *error, size_t error_bytes);

#endif
