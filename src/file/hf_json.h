/* SPDX-License-Identifier: MIT */
#ifndef GM_FILE_HF_JSON_H
#define GM_FILE_HF_JSON_H

/* JSON from outside: one call parses it, and one call per member checks that it
 * is there, of the right kind and in range, with a sentence where it is not. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

/* An object of a file, and how to name it in sentences. All borrowed. */
typedef struct gm_json {
    const json_t *at;   /* the object                                              */
    const char *file;   /* "model/config.json"                                     */
    const char *prefix; /* what stands before a member's name: "", "text_config."  */
} gm_json;

/* Parses size bytes into a tree, whose root is an object, that the caller gives to json_decref.
 * Duplicate members are refused. flags are jansson's, 0 for none. */
gm_status gm_json_parse(json_t **out, const uint8_t *data, size_t size, size_t flags,
                        const char *file, gm_err *err);

/* The member, NULL where it is absent or null. */
json_t *gm_json_find(const gm_json *o, const char *key);

/* Each reads one member into *out. An absent member leaves *out as it was (the default); so does
 * null for bools, strings and objects, whereas a number may not be null. Another kind, or a number
 * outside min to max, is refused. Strings live as long as the tree. */
gm_status gm_json_u32(const gm_json *o, const char *key, uint32_t min, uint32_t max, uint32_t *out,
                      gm_err *err);
gm_status gm_json_f64(const gm_json *o, const char *key, double min, double max, double *out,
                      gm_err *err);
gm_status gm_json_bool(const gm_json *o, const char *key, bool *out, gm_err *err);
gm_status gm_json_str(const gm_json *o, const char *key, gm_str *out, gm_err *err);
gm_status gm_json_object(const gm_json *o, const char *key, const json_t **out, gm_err *err);

/* The bytes of a JSON string. */
gm_str gm_json_text(const json_t *string);

/* Refuses: "file: prefix+key is KIND, expected EXPECTED". */
gm_status gm_json_refuse(const gm_json *o, const char *key, const json_t *found,
                         const char *expected, gm_err *err);

#endif
