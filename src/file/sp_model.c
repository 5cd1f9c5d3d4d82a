/* SPDX-License-Identifier: MIT */

/* tokenizer.model: SentencePiece's ModelProto in protobuf's wire format, read by
 * hand. Of the dozens of fields these matter:
 *
 *     ModelProto      1 pieces*   2 trainer_spec   3 normalizer_spec
 *     piece           1 text      2 score (float)  3 kind (1 when absent)
 *     trainer_spec    3 model_type   24 treat_whitespace_as_suffix
 *                     40 unk_id   41 bos_id   42 eos_id   43 pad_id
 *     normalizer_spec 1 name   2 precompiled_charsmap   3 add_dummy_prefix
 *                     4 remove_extra_whitespaces   5 escape_whitespaces
 *
 * A message is a run of fields, each with a number and one of four forms; fields
 * nobody asks for are stepped over. The tokenizer behind this header does what
 * Gemma's models ask for; a model that asks for more (Unicode normalisation,
 * collapsing of spaces) would be encoded wrongly, so it is refused. */

#include <math.h>

#include "base/fp16.h"
#include "file/hf.h"
#include "file/hf_meta.h"
#include "file/hf_vocab.h"

/* ---- the wire format ----------------------------------------------------------------- */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

typedef struct field {
    uint64_t number;
    uint32_t wire;
    uint64_t value; /* WIRE_VARINT, WIRE_64, WIRE_32 */
    gm_str bytes;   /* WIRE_BYTES                    */
} field;

/* Takes n bytes off the front of *s. */
static bool bytes_take(gm_str *s, uint64_t n, gm_str *out)
{
    if (n > s->len) return false;
    *out = (gm_str){s->p, (size_t)n};
    *s = (gm_str){s->p + n, s->len - (size_t)n};
    return true;
}

static bool varint_take(gm_str *s, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        gm_str b;
        if (!bytes_take(s, 1, &b)) return false;
        const uint8_t byte = (uint8_t)b.p[0];
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* Takes one field off the front of a message; false when the bytes are none. */
static bool field_take(gm_str *s, field *out)
{
    uint64_t key = 0, len = 0;
    *out = (field){0};
    if (!varint_take(s, &key) || key >> 3 == 0) return false;
    out->number = key >> 3;
    out->wire = (uint32_t)(key & 7);
    switch (out->wire) {
    case WIRE_VARINT: return varint_take(s, &out->value);
    case WIRE_BYTES: return varint_take(s, &len) && bytes_take(s, len, &out->bytes);
    case WIRE_64:
        if (!bytes_take(s, 8, &out->bytes)) return false;
        out->value = gm_read_u64(out->bytes.p);
        return true;
    case WIRE_32:
        if (!bytes_take(s, 4, &out->bytes)) return false;
        out->value = gm_read_u32(out->bytes.p);
        return true;
    default: return false;
    }
}

/* ---- the messages -------------------------------------------------------------------- */

typedef struct sp_model {
    const char *name;
    uint32_t n_pieces;
    uint64_t model_type; /* 1 unigram, 2 BPE, 3 word, 4 char */
    uint64_t space_as_suffix;
    int32_t unk, bos, eos, pad; /* -1: none */
    gm_str normalizer, charsmap;
    uint64_t dummy_prefix, collapse_spaces, escape_spaces;
} sp_model;

static gm_status refuse_bytes(const sp_model *m, const char *where, gm_err *err)
{
    return gm_fail(err, GM_E_FORMAT, 0,
                   "%s: is no SentencePiece model: its %s cannot be read, expected protobuf fields",
                   m->name, where);
}

/* What a message's known fields are stored in, each by its form. */
typedef struct slot {
    uint64_t number;
    uint64_t *value;
    int32_t *id;
    gm_str *bytes;
} slot;

/* Reads a message into the slots. As in protobuf the last of several wins. */
static bool message_read(gm_str s, const slot *slots, size_t n)
{
    while (s.len) {
        field fd;
        if (!field_take(&s, &fd)) return false;
        for (size_t i = 0; i < n; i++) {
            if (slots[i].number != fd.number) continue;
            if (fd.wire != (slots[i].bytes ? WIRE_BYTES : WIRE_VARINT)) return false;
            if (slots[i].bytes) *slots[i].bytes = fd.bytes;
            if (slots[i].value) *slots[i].value = fd.value;
            if (slots[i].id) *slots[i].id = (int32_t)(uint32_t)fd.value;
        }
    }
    return true;
}

static bool trainer_read(sp_model *m, gm_str bytes)
{
    const slot slots[] = {
        {.number = 3, .value = &m->model_type}, {.number = 24, .value = &m->space_as_suffix},
        {.number = 40, .id = &m->unk},          {.number = 41, .id = &m->bos},
        {.number = 42, .id = &m->eos},          {.number = 43, .id = &m->pad},
    };
    return message_read(bytes, slots, sizeof slots / sizeof slots[0]);
}

static bool normalizer_read(sp_model *m, gm_str bytes)
{
    const slot slots[] = {
        {.number = 1, .bytes = &m->normalizer},    {.number = 2, .bytes = &m->charsmap},
        {.number = 3, .value = &m->dummy_prefix},  {.number = 4, .value = &m->collapse_spaces},
        {.number = 5, .value = &m->escape_spaces},
    };
    return message_read(bytes, slots, sizeof slots / sizeof slots[0]);
}

/* Counts the pieces and reads everything else. */
static gm_status model_read(sp_model *m, gm_str s, gm_err *err)
{
    while (s.len) {
        field fd;
        if (!field_take(&s, &fd)) return refuse_bytes(m, "outermost message", err);
        if (fd.number > 3) continue;
        if (fd.wire != WIRE_BYTES) return refuse_bytes(m, "outermost message", err);
        if (fd.number == 1 && ++m->n_pieces > GM_HF_VOCAB_MAX) {
            return gm_fail(err, GM_E_TOOBIG, 0, "%s: has more than %u pieces", m->name,
                           GM_HF_VOCAB_MAX);
        }
        if (fd.number == 2 && !trainer_read(m, fd.bytes))
            return refuse_bytes(m, "trainer_spec", err);
        if (fd.number == 3 && !normalizer_read(m, fd.bytes))
            return refuse_bytes(m, "normalizer_spec", err);
    }
    if (m->n_pieces) return GM_OK;
    return gm_fail(err, GM_E_FORMAT, 0, "%s: has no pieces, expected a SentencePiece model",
                   m->name);
}

static gm_status model_check(const sp_model *m, gm_err *err)
{
    static const char *const TYPE[] = {"0", "unigram", "BPE", "word", "char"};
    const char *const name = m->name;
    if (m->model_type != 2) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "%s: is a SentencePiece model of type %s, which is not supported; expected "
                       "BPE",
                       name, m->model_type < 5 ? TYPE[m->model_type] : "unknown");
    }
    if (m->charsmap.len || (m->normalizer.len && !gm_str_eq(m->normalizer, GM_STR("identity")))) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "%s: normalises text by \"%.*s\", which is not supported; expected identity",
                       name, GM_STR_ARG(m->normalizer));
    }
    if (m->collapse_spaces || !m->escape_spaces || m->space_as_suffix) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "%s: %s, which is not supported; expected spaces kept as they are", name,
                       m->collapse_spaces ? "has remove_extra_whitespaces true"
                       : m->escape_spaces ? "has treat_whitespace_as_suffix true"
                                          : "has escape_whitespaces false");
    }
    return GM_OK;
}

/* ---- the translation ----------------------------------------------------------------- */

static gm_status piece_read(gm_tensorfile *f, const sp_model *m, gm_str s, gm_hf_vocab *v,
                            uint32_t id, gm_err *err)
{
    gm_str text = {0};
    uint64_t kind = GM_HF_KIND_NORMAL;
    float score = 0;
    while (s.len) {
        field fd;
        if (!field_take(&s, &fd)) return refuse_bytes(m, "list of pieces", err);
        if (fd.number == 1 && fd.wire == WIRE_BYTES) text = fd.bytes;
        if (fd.number == 2 && fd.wire == WIRE_32) score = gm_f32_from_bits((uint32_t)fd.value);
        if (fd.number == 3 && fd.wire == WIRE_VARINT) kind = fd.value;
    }
    if (!text.len || kind < 1 || kind > GM_HF_KIND_BYTE || !isfinite(score)) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: piece %u \"%.*s\" has kind %llu and score %g, expected a text, a kind "
                       "from 1 to 6 and a finite score",
                       m->name, id, GM_STR_ARG(text), (unsigned long long)kind, (double)score);
    }
    v->score[id] = score;
    v->text[id] = text;
    v->kind[id] = (int32_t)kind;
    return kind == GM_HF_KIND_USER ? gm_hf_vocab_add(f, v, id, text, false, err) : GM_OK;
}

static gm_status pieces_read(gm_tensorfile *f, const sp_model *m, gm_str s, gm_hf_vocab *v,
                             gm_err *err)
{
    field fd;
    uint32_t id = 0;
    while (s.len && field_take(&s, &fd)) {
        if (fd.number == 1) GM_TRY(piece_read(f, m, fd.bytes, v, id++, err));
    }
    return GM_OK;
}

static gm_status ids_put(gm_tensorfile *f, const sp_model *m, gm_err *err)
{
    const struct {
        const char *key, *field;
        int32_t id;
    } IDS[] = {
        {"tokenizer.ggml.bos_token_id", "bos_id", m->bos},
        {"tokenizer.ggml.eos_token_id", "eos_id", m->eos},
        {"tokenizer.ggml.unknown_token_id", "unk_id", m->unk},
        {"tokenizer.ggml.padding_token_id", "pad_id", m->pad},
    };
    for (size_t i = 0; i < sizeof IDS / sizeof IDS[0]; i++) {
        if (IDS[i].id < 0) continue;
        if ((uint32_t)IDS[i].id >= m->n_pieces) {
            return gm_fail(err, GM_E_FORMAT, 0, "%s: %s is %d, expected one of its %u pieces",
                           m->name, IDS[i].field, IDS[i].id, m->n_pieces);
        }
        GM_TRY(gm_hf_put_u32(f, IDS[i].key, (uint32_t)IDS[i].id, err));
    }
    return GM_OK;
}

gm_status gm_sp_model_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                            gm_err *err)
{
    const gm_str all = {(const char *)data, size};
    gm_hf_vocab v = {0};
    /* What protobuf says of a field that is absent. */
    sp_model m = {.name = name,
                  .model_type = 1,
                  .unk = 0,
                  .bos = 1,
                  .eos = 2,
                  .pad = -1,
                  .dummy_prefix = 1,
                  .collapse_spaces = 1,
                  .escape_spaces = 1};
    GM_TRY(model_read(&m, all, err));
    GM_TRY(model_check(&m, err));
    GM_TRY(gm_hf_vocab_init(f, &v, m.n_pieces, err));
    GM_TRY(pieces_read(f, &m, all, &v, err));
    GM_TRY(gm_hf_vocab_put(f, &v, err));
    GM_TRY(ids_put(f, &m, err));
    return gm_hf_put_bool(f, "tokenizer.ggml.add_space_prefix", m.dummy_prefix != 0, err);
}
