/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_OUTPUT_H
#define GM_PROGRAMS_OUTPUT_H

/* What the program says. Standard output has the answer and nothing else; all
 * other words go to standard error.
 *
 * A failure to write ends the process here, so that no command has to think of it:
 * quietly and with success when the reader closed the pipe (it has what it
 * wanted), with a sentence and exit code 1 otherwise. So does a lack of memory. */

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "gemmule.h"

/* ---- standard output ------------------------------------------------------------------- */

void gm_out_bytes(const char *p, size_t n);
void gm_out_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Shown as text that keeps to its line: control characters, quotes and backslashes as C escapes. */
void gm_out_escaped(const char *p, size_t n);
/* Makes sure that all of it has left the process. */
void gm_out_flush(void);

/* ---- standard error -------------------------------------------------------------------- */

/* "gemmule: <sentence>"; answers GM_EXIT_FAILED. */
int gm_say_failed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "gemmule: note: <sentence>" */
void gm_say_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The line as it is. */
void gm_say_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* From now on none of these waits for whoever reads standard error: a line that cannot be written at
 * once is dropped, and before the next one that can be there is a note of how many were. Lines have GM_LINE_MAX
 * bytes at most then, with their end. */
void gm_say_at_once(void);
#define GM_LINE_MAX 4096
/* "name     value", for what -v shows after an answer. */
void gm_say_fact(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- text and JSON --------------------------------------------------------------------- */

/* "1.2 GB", in powers of 1000, into the buffer that it answers. */
const char *gm_size_text(uint64_t bytes, char text[16]);

/* A growing run of bytes; all-zero is an empty one. */
typedef struct gm_bytes {
    char *p;
    size_t len, cap;
} gm_bytes;
void gm_bytes_put(gm_bytes *b, const char *p, size_t n);
void gm_bytes_free(gm_bytes *b);

/* A JSON string; bytes that are not UTF-8 become U+FFFD. */
json_t *gm_outjson_text(const char *p, size_t n);
/* A number, or null for what JSON has no number for (infinities, NaN). */
json_t *gm_outjson_real(double x);
/* Appends to an array, whose element it becomes. */
void gm_outjson_append(json_t *array, json_t *value);
/* Prints the value on a line of its own and frees it. */
void gm_out_json(json_t *value);
/* The same without the line's end, for one that is printed in parts. */
void gm_out_json_part(json_t *value);

/* The memory, or the end of the process with a sentence. */
void *gm_need(void *memory);

#endif
