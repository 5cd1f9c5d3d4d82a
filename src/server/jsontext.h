/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_JSONTEXT_H
#define GM_SERVER_JSONTEXT_H

/* JSON written as text, for what is long or comes token by token: as jansson's values it would take
 * many times its text. A lack of memory is latched in the buffer. */

#include "base/strbuf.h"

/* The inside of a string; bytes that are not UTF-8 become U+FFFD. */
void gm_jsontext_put(gm_strbuf *out, gm_str text);
/* The same between quotes. */
void gm_jsontext_string(gm_strbuf *out, gm_str text);
/* The same of a C string; NULL is null. */
void gm_jsontext_name(gm_strbuf *out, const char *text);
/* A real number, with nine digits, which has a point or an exponent in any case. */
void gm_jsontext_real(gm_strbuf *out, double value);

#endif
