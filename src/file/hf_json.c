/* SPDX-License-Identifier: MIT */
#include "file/hf_json.h"

#include <stdio.h>

gm_status gm_json_parse(json_t **out, const uint8_t *data, size_t size, size_t flags,
                        const char *file, gm_err *err)
{
    json_error_t e = {0};
    *out = NULL;
    if (size == 0) return gm_fail(err, GM_E_FORMAT, 0, "%s: is empty, expected JSON", file);
    json_t *const root = json_loadb((const char *)data, size, flags | JSON_REJECT_DUPLICATES, &e);
    /* jansson leaves the text empty where an allocation fails, except in its lexer, which then
     * calls the token invalid: that cannot be told from a syntax error. */
    if (!root && (e.text[0] == '\0' || json_error_code(&e) == json_error_out_of_memory))
        return gm_fail(err, GM_E_NOMEM, 0, "memory: there is none for the JSON of %s", file);
    if (!root) {
        return gm_fail(err, GM_E_FORMAT, 0, "%s: is not valid JSON at line %d, column %d: %s", file,
                       e.line, e.column, e.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return gm_fail(err, GM_E_FORMAT, 0, "%s: is JSON but no object, expected an object", file);
    }
    *out = root;
    return GM_OK;
}

json_t *gm_json_find(const gm_json *o, const char *key)
{
    json_t *const j = json_object_get(o->at, key);
    return json_is_null(j) ? NULL : j;
}

gm_str gm_json_text(const json_t *string)
{
    return (gm_str){json_string_value(string), json_string_length(string)};
}

gm_status gm_json_refuse(const gm_json *o, const char *key, const json_t *found,
                         const char *expected, gm_err *err)
{
    char number[40];
    gm_str what = GM_STR("nothing");
    const char *quote = "";
    if (json_is_string(found)) {
        what = gm_json_text(found);
        quote = "\"";
    } else if (json_is_number(found)) {
        if (json_is_integer(found))
            snprintf(number, sizeof number, "%lld", (long long)json_integer_value(found));
        else
            snprintf(number, sizeof number, "%g", json_real_value(found));
        what = gm_str_c(number);
    } else if (found) {
        static const char *const KIND[] = {
            [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_TRUE] = "true",
            [JSON_FALSE] = "false",      [JSON_NULL] = "null",
        };
        what = gm_str_c(KIND[json_typeof(found)]);
    }
    return gm_fail(err, GM_E_FORMAT, 0, "%s: %s%.80s is %s%.*s%s, expected %s", o->file, o->prefix,
                   key, quote, GM_STR_ARG(what), quote, expected);
}

gm_status gm_json_u32(const gm_json *o, const char *key, uint32_t min, uint32_t max, uint32_t *out,
                      gm_err *err)
{
    const json_t *const j = json_object_get(o->at, key);
    if (!j) return GM_OK;
    const json_int_t v = json_integer_value(j);
    if (!json_is_integer(j) || v < (json_int_t)min || v > (json_int_t)max) {
        char expected[64];
        snprintf(expected, sizeof expected, "an integer from %u to %u", min, max);
        return gm_json_refuse(o, key, j, expected, err);
    }
    *out = (uint32_t)v;
    return GM_OK;
}

gm_status gm_json_f64(const gm_json *o, const char *key, double min, double max, double *out,
                      gm_err *err)
{
    const json_t *const j = json_object_get(o->at, key);
    if (!j) return GM_OK;
    const double v = json_number_value(j);
    if (!json_is_number(j) || !(v >= min && v <= max)) {
        char expected[64];
        snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
        return gm_json_refuse(o, key, j, expected, err);
    }
    *out = v;
    return GM_OK;
}

gm_status gm_json_bool(const gm_json *o, const char *key, bool *out, gm_err *err)
{
    const json_t *const j = gm_json_find(o, key);
    if (!j) return GM_OK;
    if (!json_is_boolean(j)) return gm_json_refuse(o, key, j, "true or false", err);
    *out = json_is_true(j);
    return GM_OK;
}

gm_status gm_json_str(const gm_json *o, const char *key, gm_str *out, gm_err *err)
{
    const json_t *const j = gm_json_find(o, key);
    if (!j) return GM_OK;
    if (!json_is_string(j)) return gm_json_refuse(o, key, j, "a string", err);
    *out = gm_json_text(j);
    return GM_OK;
}

gm_status gm_json_object(const gm_json *o, const char *key, const json_t **out, gm_err *err)
{
    const json_t *const j = gm_json_find(o, key);
    if (!j) return GM_OK;
    if (!json_is_object(j)) return gm_json_refuse(o, key, j, "an object", err);
    *out = j;
    return GM_OK;
}
