/* SPDX-License-Identifier: MIT */
/* Weights as the kernels want them: planes of codes, high bits, scales and super-block scales, so
 * that neighbouring lanes read neighbouring 16 bytes whatever the format's block is in files (18
 * bytes for q4_0, 210 for q6_K), and bands of sixteen rows, so that a workgroup's rows lie together.
 * shaders/inc/weights.glsl draws the bits; what is written here must be what is read there. The one layout serves products and the embedding.
 *
 * Eight blocks of 32 of a row lie together in each plane, and so do the blocks of 32 in a file's block
 * of 256: that much is laid out at a time. The formats that models come in have functions of their own
 * (vk_pack.c); the others are taken apart by their unpack function and put together again, at a
 * fifth of the speed. */

#include <string.h>

#include "backend/vk/vk.h"
#include "base/fp16.h"
#include "base/mem.h"
#include "quant/unpack.h"

typedef enum scaling {
    FLAT,     /* d                       */
    FLAT_MIN, /* d and min               */
    SC,       /* two integer scales      */
    SC_MIN,   /* a scale and a minimum   */
    SC16_MIN, /* two of each, 4 bits     */
} scaling;

typedef struct layout {
    gm_qtype type;
    uint8_t code_bits, high_bits;
    int8_t zero;
    uint8_t super_bytes; /* d and dmin, for eight blocks */
    scaling scales;
    gm_vk_pack_eight *pack; /* NULL: by its unpack function */
} layout;

static const layout table[] = {
    {GM_QTYPE_Q4_0, 4, 0, 8, 0, FLAT, gm_vk_pack_q4_0},
    {GM_QTYPE_Q4_1, 4, 0, 0, 0, FLAT_MIN, gm_vk_pack_q4_1},
    {GM_QTYPE_Q5_0, 4, 1, 16, 0, FLAT, NULL},
    {GM_QTYPE_Q5_1, 4, 1, 0, 0, FLAT_MIN, NULL},
    {GM_QTYPE_Q8_0, 8, 0, 0, 0, FLAT, gm_vk_pack_q8_0},
    {GM_QTYPE_IQ4_NL, 4, 0, 0, 0, FLAT, gm_vk_pack_q4_0},
    {GM_QTYPE_Q2_K, 2, 0, 0, 4, SC16_MIN, NULL},
    {GM_QTYPE_Q3_K, 2, 1, 4, 4, SC, NULL},
    {GM_QTYPE_Q4_K, 4, 0, 0, 4, SC_MIN, gm_vk_pack_q4_k},
    {GM_QTYPE_Q5_K, 4, 1, 0, 4, SC_MIN, gm_vk_pack_q5_k},
    {GM_QTYPE_Q6_K, 4, 2, 32, 4, SC, gm_vk_pack_q6_k},
    {GM_QTYPE_IQ4_XS, 4, 0, 0, 4, SC, NULL},
};

static const layout *find(gm_qtype type)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].type == type) return &table[i];
    }
    return NULL;
}

uint32_t gm_vk_block_words(gm_qtype type)
{
    const layout *const l = find(type);
    return l ? l->code_bits + l->high_bits + 1u + (l->super_bytes > 0) : 0;
}

bool gm_vk_two_scales(gm_qtype type)
{
    return type == GM_QTYPE_Q2_K || type == GM_QTYPE_Q3_K || type == GM_QTYPE_Q6_K;
}

#define BAND  16u  /* rows of quantised weights that lie together                */
#define CHUNK 128u /* columns of plain floats that are laid out together */

static bool is_vector(const gm_tensor *t)
{
    return t->n_dims == 1;
}

static void row_sizes(const gm_tensor *t, gm_vk_planes *out)
{
    const uint64_t cols = gm_tensor_cols(t), blocks = (cols / 32 + 7) / 8 * 8;
    const layout *const l = find(t->type->id);
    if (is_vector(t)) {
        *out = (gm_vk_planes){.n = 1, .row_size = {4 * cols}};
    } else if (!l) {
        const uint64_t padded = (cols + CHUNK - 1) / CHUNK * CHUNK;
        *out = (gm_vk_planes){.n = 1, .row_size = {padded * t->type->block_size}};
    } else {
        *out = (gm_vk_planes){.n = GM_VK_PLANES,
                              .row_size = {blocks * l->code_bits * 4, blocks * l->high_bits * 4,
                                           blocks * (l->scales == FLAT_MIN ? 4u : 2u),
                                           blocks / 8 * l->super_bytes}};
    }
}

gm_status gm_vk_planes_of(const gm_tensor *t, gm_vk_planes *out, gm_err *err)
{
    row_sizes(t, out);
    const uint64_t rows = gm_tensor_rows(t), band = find(t->type->id) && !is_vector(t) ? BAND : 1;
    bool fits = true;
    for (uint32_t i = 0; i < out->n; i++) {
        uint64_t size = 0;
        out->off[i] = out->size;
        fits = fits && gm_size_mul(out->row_size[i], (rows + band - 1) / band * band, &size) &&
               gm_size_align(size, 16, &size) && gm_size_add(out->size, size, &out->size);
    }
    /* Kernels count blocks, 16-byte units and halves in 32 bits. */
    if (fits && out->size <= UINT32_MAX) return GM_OK;
    return gm_fail(err, GM_E_TOOBIG, 0, "vulkan: tensor %s is larger than 4 GiB", t->name);
}

/* ---- one block of 32 ------------------------------------------------------------------------- */

static void put_2bit(const uint8_t *c, uint32_t shift, uint8_t *out)
{
    memset(out, 0, 8);
    for (int v = 0; v < 32; v++)
        out[v / 16 * 4 + v % 4] |= (uint8_t)((c[v] >> shift & 3) << v / 4 % 4 * 2);
}

static void put_codes(const layout *l, const uint8_t *c, uint8_t *code, uint8_t *high)
{
    switch (l->code_bits) {
    case 8: memcpy(code, c, 32); break;
    case 2: put_2bit(c, 0, code); break;
    default:
        for (int v = 0; v < 16; v++)
            code[v] = (uint8_t)((c[v] & 15) | c[v + 16] << 4);
    }
    if (l->high_bits == 2) put_2bit(c, l->code_bits, high);
    if (l->high_bits == 1) {
        memset(high, 0, 4);
        for (int v = 0; v < 32; v++)
            high[v % 4] |= (uint8_t)((c[v] >> l->code_bits & 1) << v / 4);
    }
}

static void put_half(float f, uint8_t *out)
{
    const uint16_t h = gm_f32_to_f16(f);
    memcpy(out, &h, 2);
}

static void put_scales(const layout *l, const gm_qints *b, uint32_t part, uint8_t *out)
{
    const int16_t *const sc = b->sc + 2 * part, *const m = b->m + 2 * part;
    switch (l->scales) {
    case FLAT_MIN: put_half(-b->dmin, out + 2); /* fall through */
    case FLAT: put_half(b->d, out); break;
    case SC:
        out[0] = (uint8_t)sc[0];
        out[1] = (uint8_t)sc[1];
        break;
    case SC_MIN:
        out[0] = (uint8_t)sc[0];
        out[1] = (uint8_t)m[0];
        break;
    case SC16_MIN: out[0] = (uint8_t)(sc[0] | m[0] << 4); out[1] = (uint8_t)(sc[1] | m[1] << 4);
    }
}

/* The code of a value: of IQ4 formats its place in their table. */
static uint8_t code_of(const layout *l, int8_t q)
{
    if (l->type != GM_QTYPE_IQ4_NL && l->type != GM_QTYPE_IQ4_XS) return (uint8_t)(q + l->zero);
    uint8_t i = 0;
    while (i < 15 && gm_iq4_values[i] != q)
        i++;
    return i;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static uint32_t scale_bytes(const layout *l)
{
    return l->scales == FLAT_MIN ? 4 : 2;
}

/* Any format, as gm_vk_pack_eight does. */
static void pack_any(const layout *l, const gm_qtype_info *type, const uint8_t *from, uint32_t n,
                     const gm_vk_eight *to)
{
    const uint32_t per = type->block_len / 32;
    for (uint32_t i = 0; i < n; i++) {
        gm_qints b;
        const uint32_t part = i % per;
        uint8_t c[32];
        type->unpack(from + i / per * type->block_size, &b);
        for (uint32_t v = 0; v < 32; v++)
            c[v] = code_of(l, b.q[32 * part + v]);
        put_codes(l, c, to->codes + i * l->code_bits * 4u, to->high + i * l->high_bits * 4u);
        put_scales(l, &b, part, to->scales + i * scale_bytes(l));
        if (l->super_bytes) put_half(b.d, to->super);
        if (l->super_bytes) put_half(b.dmin, to->super + 2);
    }
}

/* The n rows of a band, of which `place` are before it: eight blocks of each row after each other, then
 * the next eight, as they lie in the planes. The processor asks ahead for what is read and written in
 * order, which here is every row and every plane; row after row, each eight went 2 KiB behind the one
 * before, which took twice as long. */
static void pack_band(const layout *l, const gm_tensor *t, const uint8_t *rows, uint64_t n,
                      uint64_t place, uint8_t *const to[GM_VK_PLANES])
{
    const uint64_t blocks = gm_tensor_cols(t) / 32, eights = (blocks + 7) / 8;
    const uint64_t row_size = gm_tensor_row_size(t);
    const uint64_t step = 8 * t->type->block_size / (t->type->block_len / 32);
    const uint32_t codes = l->code_bits * 32u, high = l->high_bits * 32u;
    const uint32_t scales = scale_bytes(l) * 8u, super = l->super_bytes;
    for (uint64_t e = 0; e < eights; e++) {
        const uint32_t left = blocks - e * 8 < 8 ? (uint32_t)(blocks - e * 8) : 8;
        for (uint64_t i = 0; i < n; i++) {
            const uint8_t *const from = rows + i * row_size + e * step;
            const uint64_t at = place * eights + e * BAND + i;
            const gm_vk_eight eight = {to[0] + at * codes, to[1] + at * high, to[2] + at * scales,
                                       to[3] + at * super};
            if (l->pack)
                l->pack(from, left, &eight);
            else
                pack_any(l, t->type, from, left, &eight);
        }
    }
}

/* Column 128 k + 16 j + s goes to place 128 k + 8 s + j: sum s finds its values together. The columns
 * of the last chunk that are not there become 0. */
#define FLOAT_ROW(name, word)                                               \
    static void name(const uint8_t *row, uint64_t cols, uint8_t *to)        \
    {                                                                       \
        word in[CHUNK], out[CHUNK];                                         \
        for (uint64_t first = 0; first < cols; first += CHUNK) {            \
            const uint64_t n = cols - first < CHUNK ? cols - first : CHUNK; \
            memset(in, 0, sizeof in);                                       \
            memcpy(in, row + first * sizeof *in, n * sizeof *in);           \
            for (uint32_t i = 0; i < CHUNK; i++)                            \
                out[i] = in[i % 8 * 16 + i / 8];                            \
            memcpy(to + first * sizeof *out, out, sizeof out);              \
        }                                                                   \
    }
FLOAT_ROW(float_row_2, uint16_t)
FLOAT_ROW(float_row_4, uint32_t)

void gm_vk_pack_rows(const gm_tensor *t, uint64_t first, uint64_t n,
                     uint8_t *const planes[GM_VK_PLANES])
{
    gm_vk_planes p;
    const layout *const l = is_vector(t) ? NULL : find(t->type->id);
    const uint64_t row_size = gm_tensor_row_size(t), step = l ? BAND : 1;
    row_sizes(t, &p);
    for (uint64_t i = 0; i < n; i += step) {
        const uint8_t *const row = t->data + (first + i) * row_size;
        uint8_t *const flat = planes[0] + i * p.row_size[0];
        if (l)
            pack_band(l, t, row, n - i < BAND ? n - i : BAND, i, planes);
        else if (is_vector(t))
            gm_qtype_expand(t->type, row, gm_tensor_cols(t), (float *)(void *)flat);
        else if (t->type->block_size == 2)
            float_row_2(row, gm_tensor_cols(t), flat);
        else
            float_row_4(row, gm_tensor_cols(t), flat);
    }
}
