/* SPDX-License-Identifier: MIT */
/* Everything but the integer products, sixteen floats at a time, written once in
 * the compiler's own vectors and compiled for each rung.
 *
 * No include guard: generic/vec_c.c, x86/vec_avx2.c and x86/vec_avx512.c include
 * this file after defining
 *
 *     NAME(x)              the function's name on this rung
 *     load_f16(p)          sixteen f16 as floats
 *     load_i8(p)           sixteen int8 as floats
 *     splat_f16(p)         one f16 as sixteen floats
 *     store_f16(p, v)      sixteen floats as f16, to nearest even
 *     to_int(v)            sixteen floats to int32, to nearest even
 *
 * A vector of 64 bytes is one AVX-512 register, two AVX2 ones or four SSE ones; the
 * operations and their order are the same, so the bits are too. */

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define PAGE   32 /* GM_PAGE_LEN, spelled out for the compiler */

/* ---- words ----------------------------------------------------------------------------- */

INLINE vf splat(float x)
{
    return x - (vf){0};
}

INLINE vf load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

/* The first n < 16 values, zeros behind them. */
INLINE vf load_part(const float *p, size_t n)
{
    vf v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

/* The larger; b where one of them is NaN. */
INLINE vf vmax(vf a, vf b)
{
    return (vf)(((vi)a & (a > b)) | ((vi)b & ~(a > b)));
}

INLINE vf vabs(vf a)
{
    return (vf)((vi)a & 0x7fffffff);
}

/* Halves folded onto each other: (0 + 8, 1 + 9, ..), then 4, 2, 1. */
INLINE float fold_add(vf v)
{
    const vf8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                  __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    const vf4 b =
        __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
    const vf4 c = b + __builtin_shufflevector(b, b, 2, 3, 2, 3);
    return c[0] + c[1];
}

INLINE float fold_max(vf v)
{
    v = vmax(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13,
                                        14, 15));
    v = vmax(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7));
    v = vmax(v, __builtin_shufflevector(v, v, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3));
    return v[0] > v[1] ? v[0] : v[1];
}

INLINE int32_t fold_int(vi v)
{
    v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
    v += __builtin_shufflevector(v, v, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3);
    return v[0] + v[1];
}

/* exp, to about 1e-7 relative; x is held within [-87, 88]. n = x / ln 2 rounded by adding and
 * taking away 1.5 * 2^23, the rest in a polynomial, and 2^n put into the exponent's bits. */
INLINE vf vexp(vf x)
{
    x = vmax(splat(-87.0f), x); /* in this order a NaN stays one */
    x = -vmax(splat(-88.0f), -x);
    const vf n = (x * 1.44269502f + 12582912.0f) - 12582912.0f;
    const vf r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    vf p = splat(1.98756915e-4f);
    p = p * r + 1.39819995e-3f;
    p = p * r + 8.33345205e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666657e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    return (vf)((vi)p + (to_int(n) << 23));
}

/* ---- products of plain floats ---------------------------------------------------------- */

INLINE vf load_bf16(const uint8_t *p)
{
    vu16 h;
    memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, vi) << 16);
}

INLINE vf load_w(const uint8_t *w, size_t i, size_t size)
{
    if (size == 4) {
        vf v;
        memcpy(&v, w + 4 * i, sizeof v);
        return v;
    }
    return load_f16(w + 2 * i);
}

/* size: bytes a weight; bf16 has its own loader. */
INLINE vf weights(const uint8_t *w, size_t i, size_t n, gm_qtype type)
{
    const size_t size = type == GM_QTYPE_F32 ? 4 : 2;
    uint8_t part[64] = {0};
    const uint8_t *from = w + i * size;
    if (n < 16) {
        memcpy(part, from, n * size);
        from = part;
    }
    return type == GM_QTYPE_BF16 ? load_bf16(from) : load_w(from, 0, size);
}

/* Columns first .. first + n_cols, n_cols known to the compiler. */
INLINE void dots(const gm_floatmul *a, uint32_t first, int n_cols, gm_qtype type)
{
    const float *const x = a->x + first * a->x_stride;
    vf acc[4] = {{0}, {0}, {0}, {0}};
    size_t i = 0;
    for (; i + 16 <= a->n; i += 16) {
        const vf v = weights(a->w, i, 16, type);
        for (int c = 0; c < n_cols; c++)
            acc[c] += v * load(x + (size_t)c * a->x_stride + i);
    }
    if (i < a->n) {
        const vf v = weights(a->w, i, a->n - i, type);
        for (int c = 0; c < n_cols; c++)
            acc[c] += v * load_part(x + (size_t)c * a->x_stride + i, a->n - i);
    }
    for (int c = 0; c < n_cols; c++)
        a->out[(first + (size_t)c) * a->out_stride] = fold_add(acc[c]);
}

#define DOTS(name, type)                         \
    static void NAME(name)(const gm_floatmul *a) \
    {                                            \
        uint32_t c = 0;                          \
        for (; c + 4 <= a->n_cols; c += 4)       \
            dots(a, c, 4, type);                 \
        for (; c < a->n_cols; c++)               \
            dots(a, c, 1, type);                 \
    }

DOTS(dots_f32, GM_QTYPE_F32)
DOTS(dots_f16, GM_QTYPE_F16)
DOTS(dots_bf16, GM_QTYPE_BF16)

/* ---- rows ------------------------------------------------------------------------------ */

static void NAME(quantise)(const float *x, size_t n, gm_actblock *out)
{
    for (size_t i = 0; i < n; i += 32, out++) {
        const vf a = load(x + i), b = load(x + i + 16);
        /* x - x is 0 for finite x, else NaN: such a block gets a NaN scale, so it is seen. */
        const vf odd = (a - a) + (b - b);
        const float max = fold_max(vmax(vabs(a), vabs(b)));
        const bool finite = fold_add(odd) == 0;
        const float up = 127.0f / max;
        const vf by = splat(finite && max > 0 && up <= 3.402823466e38f ? up : 0);
        const vi qa = to_int(finite ? a * by : splat(0)), qb = to_int(finite ? b * by : splat(0));
        const vi8 ca = __builtin_convertvector(qa, vi8), cb = __builtin_convertvector(qb, vi8);
        memcpy(out->q, &ca, 16);
        memcpy(out->q + 16, &cb, 16);
        out->scale = finite ? max / 127.0f : NAN;
        out->half[0] = fold_int(qa);
        out->half[1] = fold_int(qb);
        out->sum = out->half[0] + out->half[1];
        out->less_8 = -8 * out->sum;
        out->less_128 = -128 * out->sum;
    }
}

static void NAME(norm)(const float *x, const float *w, size_t n, float eps, float offset, float *y)
{
    vf acc = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        acc += load(x + i) * load(x + i);
    const vf rest = load_part(x + i, n - i);
    acc += rest * rest;
    const float up = 1.0f / sqrtf(fold_add(acc) / (float)n + eps);
    for (i = 0; i + 16 <= n; i += 16)
        store(y + i, load(x + i) * up * (load(w + i) + offset));
    for (; i < n; i++)
        y[i] = x[i] * up * (w[i] + offset);
}

static void NAME(add)(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void NAME(rotate)(const float *cos_sin, size_t half, float *x)
{
    for (size_t i = 0; i < half; i++) {
        const float c = cos_sin[i], s = cos_sin[half + i], a = x[i], b = x[half + i];
        x[i] = a * c - b * s;
        x[half + i] = b * c + a * s;
    }
}

/* gelu_tanh(z) = z / (1 + exp(-2 u)), u = sqrt(2 / pi) (z + 0.044715 z^3) */
INLINE vf gelu(vf z)
{
    const vf u = (z + z * z * z * 0.044715f) * 1.59576912f; /* 2 sqrt(2 / pi) */
    return z / (1.0f + vexp(-u));
}

static void NAME(gelu_mul)(const float *up, size_t n, float *gate)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        store(gate + i, gelu(load(gate + i)) * load(up + i));
    if (i == n) return;
    const vf part = gelu(load_part(gate + i, n - i)) * load_part(up + i, n - i);
    memcpy(gate + i, &part, (n - i) * sizeof *gate);
}

static float NAME(exp_sub)(float *x, size_t n, float max)
{
    vf acc = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const vf e = vexp(load(x + i) - max);
        acc += e;
        store(x + i, e);
    }
    float rest = 0;
    if (i < n) {
        const vf e = vexp(load_part(x + i, n - i) - max);
        memcpy(x + i, &e, (n - i) * sizeof *x);
        for (; i < n; i++)
            rest += x[i];
    }
    return fold_add(acc) + rest;
}

/* tanh(y) = 1 - 2 / (exp(2 y) + 1) */
static void NAME(softcap)(float *x, size_t n, float cap)
{
    for (size_t i = 0; i < n; i += 16) {
        const size_t m = n - i < 16 ? n - i : 16;
        const vf y = load_part(x + i, m) / cap;
        const vf t = (1.0f - 2.0f / (vexp(y + y) + 1.0f)) * cap;
        memcpy(x + i, &t, m * sizeof *x);
    }
}

static double NAME(logsum)(const float *x, size_t n)
{
    vf top = splat(-INFINITY);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        top = vmax(load(x + i), top);
    float max = fold_max(top);
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    double sum = 0;
    for (i = 0; i + 256 <= n; i += 256) { /* short sums in float32 lose nothing that counts */
        vf part = {0};
        for (size_t j = 0; j < 256; j += 16)
            part += vexp(load(x + i + j) - max);
        sum += (double)fold_add(part);
    }
    for (; i < n; i++)
        sum += exp((double)x[i] - (double)max);
    return (double)max + log(sum);
}

/* Ways: as it comes; asking for lines ahead; the same from four places at once. */
static uint64_t NAME(read)(const uint8_t *p, size_t n, uint32_t way)
{
    vi acc[4] = {{0}, {0}, {0}, {0}};
    const size_t streams = way == 2 ? 4 : 1, step = n / streams;
    for (size_t i = 0; i < step; i += 256) {
        for (size_t s = 0; s < streams; s++) {
            const uint8_t *const from = p + s * step + i;
            for (int j = 0; way && j < 4; j++)
                __builtin_prefetch(from + 4096 + 64 * j, 0, 2);
            for (int j = 0; j < 4; j++) {
                vi v;
                memcpy(&v, from + 64 * j, sizeof v);
                acc[j] ^= v;
            }
        }
    }
    const vi all = acc[0] ^ acc[1] ^ acc[2] ^ acc[3];
    uint64_t sum = 0;
    for (int i = 0; i < 16; i++)
        sum += (uint32_t)all[i];
    return sum;
}

/* ---- the KV cache ---------------------------------------------------------------------- */

enum { KV_F32, KV_F16, KV_Q8_0 };

/* Thirty-two values of a KV row, i a multiple of that: a block of Q8_0, whose scale is read once. */
INLINE void kv_load(const uint8_t *row, size_t i, int type, vf v[2])
{
    const uint8_t *const block = row + i / 32 * 34;
    const vf scale = type == KV_Q8_0 ? splat_f16(block) : splat(1);
    for (size_t h = 0; h < 2; h++) {
        const size_t at = i + 16 * h;
        v[h] = type == KV_F32   ? load((const float *)(const void *)(row + 4 * at))
               : type == KV_F16 ? load_f16(row + 2 * at)
                                : load_i8(block + 2 + 16 * h) * scale;
    }
}

static void NAME(kv_store_f32)(const float *x, size_t len, uint8_t *row)
{
    memcpy(row, x, len * sizeof *x);
}

static void NAME(kv_store_f16)(const float *x, size_t len, uint8_t *row)
{
    for (size_t i = 0; i < len; i += 16)
        store_f16(row + 2 * i, load(x + i));
}

static void NAME(kv_store_q8_0)(const float *x, size_t len, uint8_t *row)
{
    for (size_t i = 0; i < len; i += 32) {
        gm_actblock block;
        NAME(quantise)(x + i, 32, &block);
        const uint16_t d = gm_f32_to_f16(block.scale);
        memcpy(row + i / 32 * 34, &d, sizeof d);
        memcpy(row + i / 32 * 34 + 2, block.q, sizeof block.q);
    }
}

/* Scores of n heads (known to the compiler) with every cell. */
INLINE void scores_of(const gm_kvcells *k, const float *q, float scale, float *s, int n, int type)
{
    for (uint32_t c = 0; c < k->n; c++) {
        const uint8_t *const row = k->base + (size_t)(k->cell_first + c) * k->stride;
        vf acc[4] = {{0}, {0}, {0}, {0}};
        for (size_t i = 0; i < k->len; i += 32) {
            vf v[2];
            kv_load(row, i, type, v);
            for (int g = 0; g < n; g++) {
                acc[g] += v[0] * load(q + (size_t)g * k->len + i);
                acc[g] += v[1] * load(q + (size_t)g * k->len + i + 16);
            }
        }
        for (int g = 0; g < n; g++)
            s[g * PAGE + (int)c] = scale * fold_add(acc[g]);
    }
}

/* acc of n heads, thirty-two values at a time over all cells. */
INLINE void mix_of(const gm_kvcells *v, const float *p, const float *keep, float *acc, int n,
                   int type)
{
    for (size_t i = 0; i < v->len; i += 32) {
        vf a[4][2];
        for (int g = 0; g < 2 * n; g++)
            a[g / 2][g % 2] = load(acc + (size_t)(g / 2) * v->len + i + 16 * (g % 2)) * keep[g / 2];
        for (uint32_t c = 0; c < v->n; c++) {
            vf x[2];
            kv_load(v->base + (size_t)(v->cell_first + c) * v->stride, i, type, x);
            for (int g = 0; g < n; g++) {
                a[g][0] += x[0] * p[g * PAGE + (int)c];
                a[g][1] += x[1] * p[g * PAGE + (int)c];
            }
        }
        for (int g = 0; g < 2 * n; g++)
            store(acc + (size_t)(g / 2) * v->len + i + 16 * (g % 2), a[g / 2][g % 2]);
    }
}

/* Heads in fours, twos and ones. */
#define KV_KERNELS(name, type)                                                                     \
    static void NAME(kv_scores_##name)(const gm_kvcells *k, const float *q, float scale, float *s) \
    {                                                                                              \
        uint32_t g = 0;                                                                            \
        for (; g + 4 <= k->group; g += 4)                                                          \
            scores_of(k, q + (size_t)g * k->len, scale, s + g * PAGE, 4, type);                    \
        for (; g + 2 <= k->group; g += 2)                                                          \
            scores_of(k, q + (size_t)g * k->len, scale, s + g * PAGE, 2, type);                    \
        if (g < k->group) scores_of(k, q + (size_t)g * k->len, scale, s + g * PAGE, 1, type);      \
    }                                                                                              \
    static void NAME(kv_mix_##name)(const gm_kvcells *v, const float *p, const float *keep,        \
                                    float *acc)                                                    \
    {                                                                                              \
        uint32_t g = 0;                                                                            \
        for (; g + 4 <= v->group; g += 4)                                                          \
            mix_of(v, p + g * PAGE, keep + g, acc + (size_t)g * v->len, 4, type);                  \
        for (; g + 2 <= v->group; g += 2)                                                          \
            mix_of(v, p + g * PAGE, keep + g, acc + (size_t)g * v->len, 2, type);                  \
        if (g < v->group) mix_of(v, p + g * PAGE, keep + g, acc + (size_t)g * v->len, 1, type);    \
    }

KV_KERNELS(f32, KV_F32)
KV_KERNELS(f16, KV_F16)
KV_KERNELS(q8_0, KV_Q8_0)

void NAME(gm_kernels_vec)(gm_kernels *k)
{
    k->dots[GM_QTYPE_F32] = NAME(dots_f32);
    k->dots[GM_QTYPE_F16] = NAME(dots_f16);
    k->dots[GM_QTYPE_BF16] = NAME(dots_bf16);
    k->quantise = NAME(quantise);
    k->norm = NAME(norm);
    k->add = NAME(add);
    k->rotate = NAME(rotate);
    k->gelu_mul = NAME(gelu_mul);
    k->exp_sub = NAME(exp_sub);
    k->softcap = NAME(softcap);
    k->logsum = NAME(logsum);
    k->read = NAME(read);
    k->kv_store[KV_F32] = NAME(kv_store_f32);
    k->kv_store[KV_F16] = NAME(kv_store_f16);
    k->kv_store[KV_Q8_0] = NAME(kv_store_q8_0);
    k->kv_scores[KV_F32] = NAME(kv_scores_f32);
    k->kv_scores[KV_F16] = NAME(kv_scores_f16);
    k->kv_scores[KV_Q8_0] = NAME(kv_scores_q8_0);
    k->kv_mix[KV_F32] = NAME(kv_mix_f32);
    k->kv_mix[KV_F16] = NAME(kv_mix_f16);
    k->kv_mix[KV_Q8_0] = NAME(kv_mix_q8_0);
}
