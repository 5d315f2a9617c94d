#include "daemon/nodes/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/host/memory.h"

enum {
	KEY_MIN = 32, /* bytes: an eavesdropper can try keys against a recorded handshake */
	KEY_MAX = 4096,
	PSK_BYTES = 32,
	IDENTITY_BYTES = 128,
};

/* TLS_AES_128_GCM_SHA256, RFC 8446, appendix B.4 */
static const unsigned char suite[] = {0x13, 0x01};

struct tls {
	SSL_CTX *context;
	unsigned char psk[PSK_BYTES];
	char cluster[IDENTITY_BYTES];
	char identity[2 * IDENTITY_BYTES]; /* identity of a client */
	int node, nodes;
};

enum { LEADER = 0 };

/* ---- the key ---- */

/* The bytes of the key file, or -EINVAL with error. */
static ssize_t read_key(
	const char *path, unsigned char key[KEY_MAX], char *error, size_t error_bytes)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n = -1;

	if (fd < 0 || fstat(fd, &st) < 0)
		snprintf(error, error_bytes, "key_file: %s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		snprintf(error, error_bytes, "key_file: %s: not a regular file", path);
	else if (st.st_uid != 0 && st.st_uid != geteuid())
		snprintf(error, error_bytes,
			"key_file: %s: belongs to uid %u (expected root or uid %u)", path,
			(unsigned)st.st_uid, (unsigned)geteuid());
	else if ((st.st_mode & 0077) != 0)
		snprintf(error, error_bytes,
			"key_file: %s: mode %04o, others can read it: chmod 600 %s", path,
			(unsigned)st.st_mode & 07777, path);
	else if (st.st_size < KEY_MIN || st.st_size > KEY_MAX)
		snprintf(error, error_bytes, "key_file: %s: %lld bytes (expected %d to %d)", path,
			(long long)st.st_size, KEY_MIN, KEY_MAX);
	else if ((n = read(fd, key, KEY_MAX)) != st.st_size)
		snprintf(error, error_bytes, "key_file: %s: cannot be read", path);
	else {
		close(fd);
		return n;
	}
	if (fd >= 0)
		close(fd);
	return -EINVAL;
}

int tls_check_key(const char *key_file, char *error, size_t error_bytes)
{
	unsigned char key[KEY_MAX];
	const ssize_t n = read_key(key_file, key, error, error_bytes);

	OPENSSL_cleanse(key, sizeof(key));
	return n < 0 ? -EINVAL : 0;
}

static int derive(struct tls *t, unsigned char *key, size_t n)
{
	char digest[] = "SHA256", info[IDENTITY_BYTES + 16];
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	EVP_KDF_CTX *context = EVP_KDF_CTX_new(kdf);
	OSSL_PARAM params[4], *p = params;
	int rc;

	snprintf(info, sizeof(info), "gpt2d/1/%s", t->cluster);
	*p++ = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0);
	*p++ = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, key, n);
	*p++ = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, strlen(info));
	*p = OSSL_PARAM_construct_end();
	rc = context != NULL && EVP_KDF_derive(context, t->psk, sizeof(t->psk), params) == 1 ? 0
											     : -EIO;
	EVP_KDF_CTX_free(context);
	EVP_KDF_free(kdf);
	return rc;
}

static SSL_SESSION *psk_session(SSL *ssl, const struct tls *t)
{
	SSL_SESSION *session = SSL_SESSION_new();

	if (session != NULL && SSL_SESSION_set1_master_key(session, t->psk, sizeof(t->psk)) == 1 &&
		SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite)) == 1 &&
		SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

/* ---- the handshake ---- */

static const struct tls *of_session(SSL *ssl)
{
	return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

/* Node IDs are kept with the session as number + 1: NULL means none. */
static void set_peer(SSL *ssl, int node)
{
	SSL_set_app_data(ssl, (void *)(intptr_t)(node + 1));
}

/* The member in an identity; -1: not of this cluster. */
static int member_of(const struct tls *t, const unsigned char *identity, size_t n)
{
	char text[IDENTITY_BYTES], expected[2 * IDENTITY_BYTES];

	if (n >= sizeof(text))
		return -1;
	memcpy(text, identity, n);
	text[n] = '\0';
	for (int from = 1; from < t->nodes; from++) {
		snprintf(expected, sizeof(expected), "gpt2d/1/%s/%d/%d", t->cluster, from, t->node);
		if (strlen(text) == n && strcmp(text, expected) == 0)
			return from;
	}
	return -1;
}

static int find_session(SSL *ssl, const unsigned char *identity, size_t n, SSL_SESSION **session)
{
	const struct tls *t = of_session(ssl);
	const int from = member_of(t, identity, n);

	*session = NULL; /* for an unknown identity: the handshake fails without a certificate */
	if (from < 0)
		return 1;
	set_peer(ssl, from);
	*session = psk_session(ssl, t);
	return *session != NULL;
}

static int use_session(SSL *ssl, const EVP_MD *digest, const unsigned char **identity, size_t *n,
	SSL_SESSION **session)
{
	const struct tls *t = of_session(ssl);

	*identity = (const unsigned char *)t->identity;
	*n = strlen(t->identity);
	*session = psk_session(ssl, t);
	set_peer(ssl, LEADER);
	return *session != NULL;
}

static int set_context(struct tls *t)
{
	SSL_CTX *c = SSL_CTX_new(t->nodes > 0 ? TLS_server_method() : TLS_client_method());

	t->context = c;
	if (c == NULL || SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
		SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) != 1 ||
		SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256") != 1 ||
		SSL_CTX_set1_groups_list(c, "X25519") != 1 || SSL_CTX_set_num_tickets(c, 0) != 1)
		return -EIO;
	SSL_CTX_set_options(
		c, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_app_data(c, t);
	if (t->nodes > 0) {
		SSL_CTX_set_verify(c, SSL_VERIFY_NONE, NULL);
		SSL_CTX_set_psk_find_session_callback(c, find_session);
	} else {
		/* without CAs: a leader with any certificate is refused */
		SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
		SSL_CTX_set_psk_use_session_callback(c, use_session);
	}
	return 0;
}

int tls_create(const struct tls_options *options, struct tls **out, char *error, size_t error_bytes)
{
	struct tls *t = memory_zeroed(1, sizeof(*t));
	unsigned char key[KEY_MAX];
	ssize_t n = read_key(options->key_file, key, error, error_bytes);

	t->node = options->node;
	t->nodes = options->nodes;
	snprintf(t->cluster, sizeof(t->cluster), "%s", options->cluster);
	snprintf(t->identity, sizeof(t->identity), "gpt2d/1/%s/%d/%d", t->cluster, t->node, LEADER);
	if (n >= 0 && (derive(t, key, (size_t)n) < 0 || set_context(t) < 0)) {
		tls_error(ERR_peek_last_error(), error, error_bytes);
		n = -EIO;
	}
	OPENSSL_cleanse(key, sizeof(key));
	if (n < 0) {
		tls_destroy(t);
		return (int)n;
	}
	*out = t;
	return 0;
}

void tls_destroy(struct tls *t)
{
	if (t == NULL)
		return;
	SSL_CTX_free(t->context);
	OPENSSL_cleanse(t->psk, sizeof(t->psk));
	free(t);
}

struct ssl_st *tls_session(struct tls *t)
{
	return SSL_new(t->context);
}

int tls_peer(const struct ssl_st *ssl)
{
	if (SSL_session_reused(ssl) != 1)
		return -1;
	return (int)(intptr_t)SSL_get_app_data(ssl) - 1;
}

void tls_error(unsigned long code, char *out, size_t out_bytes)
{
	static const struct {
		int reason;
		const char *text;
	} known[] = {
		{SSL_R_BINDER_DOES_NOT_VERIFY, "wrong key: key_file differs between the nodes"},
		{SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM,
			"no key of this cluster: cluster or node_id differs, or it is not a gpt2d"},
		{SSL_R_WRONG_VERSION_NUMBER, "not TLS, or garbage"},
		{SSL_R_HTTP_REQUEST, "not TLS: an HTTP request"},
		{SSL_R_UNSUPPORTED_PROTOCOL, "not TLS 1.3"},
		{SSL_R_TLSV1_ALERT_DECRYPT_ERROR, "the leader refused the key"},
		{SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER,
			"the leader refused the key: key_file differs between the nodes"},
		{SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE,
			"the leader knows no such node: cluster or node_id differs"},
	};
	const char *text = ERR_reason_error_string(code);

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == known[i].reason)
			text = known[i].text;
	snprintf(out, out_bytes, "TLS: %s", text ? text : "unknown error");
}
