/* SPDX-License-Identifier: MIT */
/* The table. A row is a family: its cases are all combinations of its lists. */

#include "check/opcheck.h"

typedef struct shape {
    uint32_t n_in, n_out, n_head, n_kv_head, head_dim, window;
    bool layer;
} shape;

/* Lists end with a row of zeros; types with END. */
#define END (gm_qtype) UINT8_MAX

static const gm_qtype floats[] = {GM_QTYPE_F32, GM_QTYPE_F16, GM_QTYPE_BF16, END};
static const gm_qtype by32[] = {GM_QTYPE_Q4_0,
                                GM_QTYPE_Q4_1,
                                GM_QTYPE_Q5_0,
                                GM_QTYPE_Q5_1,
                                GM_QTYPE_Q8_0,
                                GM_QTYPE_IQ4_NL,
                                END};
static const gm_qtype by256[] = {GM_QTYPE_Q2_K,
                                 GM_QTYPE_Q3_K,
                                 GM_QTYPE_Q4_K,
                                 GM_QTYPE_Q5_K,
                                 GM_QTYPE_Q6_K,
                                 GM_QTYPE_IQ4_XS,
                                 END};
static const gm_qtype f32[] = {GM_QTYPE_F32, END};
static const gm_qtype kv_types[] = {GM_QTYPE_F32, GM_QTYPE_F16, GM_QTYPE_Q8_0, END};

#define WEIGHT(in, out)          \
    {                            \
        .n_in = in, .n_out = out \
    }
#define ROW(n)                \
    {                         \
        .n_in = n, .n_out = n \
    }
#define HEADS(n, dim)                                                   \
    {                                                                   \
        .n_in = n * dim, .n_out = n * dim, .n_head = n, .head_dim = dim \
    }
#define ATTEND(heads, kv, dim, sees)                                                 \
    {                                                                                \
        .n_in = heads * dim, .n_out = heads * dim, .n_head = heads, .n_kv_head = kv, \
        .head_dim = dim, .window = sees                                              \
    }

/* Columns around a register (16), a block (32) and a chunk (256); rows of weights around a panel
 * of 16. */
static const shape float_shapes[] = {WEIGHT(1, 3),  WEIGHT(15, 17),  WEIGHT(16, 16),
                                     WEIGHT(37, 5), WEIGHT(259, 33), {0}};
static const shape by32_shapes[] = {WEIGHT(32, 1),
                                    WEIGHT(96, 17),
                                    WEIGHT(256, 16),
                                    WEIGHT(288, 5),
                                    WEIGHT(544, 35),
                                    WEIGHT(640, 35),
                                    {0}};
static const shape by256_shapes[] = {
    WEIGHT(256, 1), WEIGHT(256, 17), WEIGHT(512, 16), WEIGHT(768, 35), {0}};
static const shape float_ffn[] = {WEIGHT(37, 19), {0}};
static const shape by32_ffn[] = {WEIGHT(288, 19), WEIGHT(640, 35), {0}};
static const shape by256_ffn[] = {WEIGHT(512, 19), {0}};
static const shape row_shapes[] = {ROW(1), ROW(15), ROW(16), ROW(47), ROW(640), {0}};
static const shape rope_shapes[] = {HEADS(1, 2),  HEADS(5, 6),   HEADS(2, 32),
                                    HEADS(3, 68), HEADS(2, 256), {0}};
static const shape attend_shapes[] = {ATTEND(1, 1, 8, 0),  ATTEND(2, 1, 16, 0),
                                      ATTEND(2, 2, 40, 5), ATTEND(6, 2, 36, 33),
                                      ATTEND(5, 1, 48, 0), {0}};
#define LAYER(d, ffn, heads, kv, dim, sees)                                         \
    {                                                                               \
        .n_in = d, .n_out = ffn, .n_head = heads, .n_kv_head = kv, .head_dim = dim, \
        .window = sees, .layer = true                                               \
    }
static const shape layer_shapes[] = {
    LAYER(256, 512, 4, 2, 64, 5), LAYER(256, 512, 4, 2, 128, 5), {0}};
/* The heads of Gemma 3: of 27B (also above), of 4B and 12B, of 270M and 1B. */
static const shape attend_27b[] = {ATTEND(4, 2, 128, 0), {0}};
static const shape attend_4b[] = {ATTEND(4, 2, 256, 0), {0}};
static const shape attend_1b[] = {ATTEND(4, 1, 256, 33), {0}};
static const shape layer_4b[] = {LAYER(64, 96, 4, 2, 256, 0), {0}};
static const shape layer_1b[] = {LAYER(64, 96, 4, 1, 256, 5), {0}};
static const shape draw_shapes[] = {ROW(1003), {0}};
/* Past the 512 keys at which attention is cut, and twice past them. */
static const shape attend_far_shapes[] = {ATTEND(2, 1, 16, 0), ATTEND(3, 3, 8, 20), {0}};
static const shape attend_farther_shapes[] = {ATTEND(1, 1, 8, 0), {0}};

static const uint32_t product_rows[] = {1, 2, 3, 7, 21, 0};
static const uint32_t ffn_rows[] = {1, 6, 0};
static const uint32_t some_rows[] = {1, 4, 0};
static const uint32_t attend_rows[] = {1, 6, 90, 0};
static const uint32_t layer_rows[] = {1, 9, 0};
static const uint32_t attend_far_rows[] = {1060, 0};
static const uint32_t attend_farther_rows[] = {2080, 0};

#define ALL     ((1u << GM_OPDISTS) - 1)
#define UNIFORM (1u << GM_OPDIST_UNIFORM)

typedef struct family {
    gm_opkind kind;
    const gm_qtype *types;
    const shape *shapes;
    const uint32_t *rows;
    uint32_t dists; /* bits of gm_opdist */
    const char *reference;
    double bound;
} family;

/* Bounds are a few times what float32 sums of such lengths lose. Attention's is wider because its
 * scores, of up to 100 here, enter an exponential with their absolute error; a layer's because an
 * activation that lies between two steps of int8 may be rounded to the other one. */
static const family families[] = {
    {GM_OP_INPUT_ROWS, floats, float_shapes, some_rows, ALL, "ref-int8", 0},
    {GM_OP_INPUT_ROWS, by32, by32_shapes, some_rows, ALL, "ref-int8", 0},
    {GM_OP_INPUT_ROWS, by256, by256_shapes, some_rows, ALL, "ref-int8", 0},
    {GM_OP_MATMUL, floats, float_shapes, product_rows, ALL, "ref-int8", 0},
    {GM_OP_MATMUL, by32, by32_shapes, product_rows, ALL, "ref-int8", 0},
    {GM_OP_MATMUL, by256, by256_shapes, product_rows, ALL, "ref-int8", 0},
    {GM_OP_GATE_UP_GELU, floats, float_ffn, ffn_rows, ALL, "ref-int8", 1e-6},
    {GM_OP_GATE_UP_GELU, by32, by32_ffn, ffn_rows, ALL, "ref-int8", 1e-6},
    {GM_OP_GATE_UP_GELU, by256, by256_ffn, ffn_rows, ALL, "ref-int8", 1e-6},
    {GM_OP_NORM, f32, row_shapes, some_rows, ALL, "ref", 2e-6},
    {GM_OP_NORM_ADD, f32, row_shapes, some_rows, ALL, "ref", 2e-6},
    {GM_OP_NORM_ROPE, f32, rope_shapes, some_rows, ALL, "ref", 2e-6},
    {GM_OP_SOFTCAP, f32, row_shapes, some_rows, ALL, "ref", 1e-6},
    {GM_OP_ATTEND, kv_types, attend_shapes, attend_rows, ALL, "ref", 1e-4},
    {GM_OP_ATTEND, kv_types, attend_far_shapes, attend_far_rows, UNIFORM, "ref", 1e-4},
    {GM_OP_ATTEND, f32, attend_farther_shapes, attend_farther_rows, UNIFORM, "ref", 1e-4},
    {GM_OP_ATTEND, kv_types, attend_27b, ffn_rows, UNIFORM, "ref", 1e-4},
    {GM_OP_ATTEND, kv_types, attend_4b, ffn_rows, UNIFORM, "ref", 1e-4},
    {GM_OP_ATTEND, kv_types, attend_1b, ffn_rows, UNIFORM, "ref", 1e-4},
    {GM_OP_DRAW, f32, draw_shapes, ffn_rows, UNIFORM, "ref", 1e-4},
    {GM_OP_ATTEND, floats, layer_shapes, layer_rows, UNIFORM, "ref-int8", 1e-4},
    {GM_OP_ATTEND, by32, layer_shapes, layer_rows, UNIFORM, "ref-int8", 2e-2},
    {GM_OP_ATTEND, by256, layer_shapes, layer_rows, UNIFORM, "ref-int8", 2e-2},
    {GM_OP_ATTEND, f32, layer_4b, layer_rows, UNIFORM, "ref-int8", 1e-4},
    {GM_OP_ATTEND, f32, layer_1b, layer_rows, UNIFORM, "ref-int8", 1e-4},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

const char *gm_opdist_name(gm_opdist dist)
{
    static const char *const names[GM_OPDISTS] = {"uniform", "max", "denormal", "outlier", "zero"};
    return (uint32_t)dist < GM_OPDISTS ? names[dist] : "unknown";
}

const char *gm_opcase_name(const gm_opcase *c)
{
    return c->layer ? "layer" : gm_opkind_name(c->kind);
}

static size_t n_types(const family *f)
{
    size_t n = 0;
    while (f->types[n] != END)
        n++;
    return n;
}

static size_t n_shapes(const family *f)
{
    size_t n = 0;
    while (f->shapes[n].n_in)
        n++;
    return n;
}

static size_t n_rows(const family *f)
{
    size_t n = 0;
    while (f->rows[n])
        n++;
    return n;
}

static size_t n_dists(const family *f)
{
    return (size_t)__builtin_popcount(f->dists);
}

/* The i-th of the family's inputs. */
static gm_opdist dist_at(const family *f, size_t i)
{
    uint32_t left = f->dists;
    for (; i; i--)
        left &= left - 1;
    return (gm_opdist)__builtin_ctz(left);
}

static size_t n_cases(const family *f)
{
    return n_types(f) * n_shapes(f) * n_rows(f) * n_dists(f);
}

size_t gm_opcase_n(void)
{
    size_t n = 0;
    for (size_t i = 0; i < N_FAMILIES; i++)
        n += n_cases(&families[i]);
    return n;
}

static gm_opcase case_of(const family *f, gm_qtype type, const shape *s, uint32_t rows,
                         gm_opdist dist)
{
    return (gm_opcase){
        .kind = f->kind,
        .layer = s->layer,
        .type = type,
        .n_in = s->n_in,
        .n_out = s->n_out,
        .n_head = s->n_head,
        .n_kv_head = s->n_kv_head,
        .head_dim = s->head_dim,
        .window = s->window,
        .rows = rows,
        .dist = dist,
        .reference = f->reference,
        .bound = f->bound,
    };
}

bool gm_opcase_at(size_t i, gm_opcase *out)
{
    const family *f = families;
    for (; f < families + N_FAMILIES && i >= n_cases(f); f++)
        i -= n_cases(f);
    if (f == families + N_FAMILIES) return false;
    const gm_opdist dist = dist_at(f, i % n_dists(f));
    i /= n_dists(f);
    const uint32_t rows = f->rows[i % n_rows(f)];
    i /= n_rows(f);
    *out = case_of(f, f->types[i / n_shapes(f)], &f->shapes[i % n_shapes(f)], rows, dist);
    return true;
}

bool gm_opcase_main(size_t i, gm_opcase *out)
{
    const family *f = families;
    for (; f < families + N_FAMILIES && i >= n_types(f); f++)
        i -= n_types(f);
    if (f == families + N_FAMILIES) return false;
    *out = case_of(f, f->types[i], &f->shapes[n_shapes(f) - 1], f->rows[n_rows(f) - 1],
                   GM_OPDIST_UNIFORM);
    return true;
}
