/* SPDX-License-Identifier: MIT */
/* The search for a block's numbers, written once in the compiler's own vectors.
 * No include guard: fit_c.c, fit_avx2.c and fit_avx512.c include this file after
 * defining
 *
 *     NAME(x)          the function's name on their rung
 *     LANES, vf        floats in a register, and that register; gcc 12 would take the
 *                      lanes of a wider vector one by one wherever it compares
 *     vmax, vmin       the larger and the smaller; b where one of them is NaN
 *     total_quarter    sums i, i + 4, i + 8 and i + 12 of a total as ((0 + 8) + (4 + 12))
 *     f16_round        the nearest value of an f16
 *
 * The operations and their order are the same on each, so the bits are too.
 *
 * The problem has three kinds of unknowns: codes q, the integer scales sc and
 * minima m of groups, the floats d and dmin of the block. Given all but one kind,
 * the best of that kind is known:
 *
 *     codes        rounding, one value at a time
 *     d and dmin   weighted least squares, two equations
 *     sc and m     a few integers around the float that is best for the group
 *
 * So the search goes round in circles. What decides the result is where it
 * starts, because codes hold each other in place: a group starts from 8 to 24
 * scales around max|x| / max|q|, or 16 ranges around that of its values, each with
 * its codes and then the scale and minimum that are best for these codes.
 * docs/QUANT.md says what more of them would gain.
 *
 * The floats are rounded to f16 before codes are chosen, so codes answer to the
 * scale that readers will see. Plain rounding is one of the candidates and the
 * final comparison is between true errors, so the result is never worse. */

#include <math.h>
#include <string.h>

#include "quant/unpack.h"

typedef int32_t vi4 __attribute__((vector_size(16)));

#define GROUPS_MAX (GM_QBLOCK_MAX / GM_QGROUP)
#define F16_MAX    65504.0f

/* A block's numbers as floats: integers are rare in vector instructions. */
typedef struct trial {
    float d, dmin, err;
    float sc[GROUPS_MAX], m[GROUPS_MAX];
    float q[GM_QBLOCK_MAX];
} trial;

/* One block and where it is to go. */
typedef struct block {
    const gm_form *f;
    const float *x, *w;
    uint32_t n_groups;
} block;

/* A group in registers, as far as they reach. */
typedef struct group {
    vf x[32 / LANES], w[32 / LANES];
    int n;
} group;

/* ---- words ------------------------------------------------------------------------------- */

INLINE vf splat(float x)
{
    return x - (vf){0};
}

INLINE vf4 select_4(vi4 mask, vf4 a, vf4 b)
{
    return (vf4)(((vi4)a & mask) | ((vi4)b & ~mask));
}

/* Four sums at once: what is left of the sixteen, folded twice, as total_fold does. */
INLINE vf4 totals_fold(const total t[4])
{
    const vf4 a = total_quarter(&t[0]), b = total_quarter(&t[1]);
    const vf4 c = total_quarter(&t[2]), d = total_quarter(&t[3]);
    const vf4 ab =
        __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
    const vf4 cd =
        __builtin_shufflevector(c, d, 0, 1, 4, 5) + __builtin_shufflevector(c, d, 2, 3, 6, 7);
    return __builtin_shufflevector(ab, cd, 0, 2, 4, 6) +
           __builtin_shufflevector(ab, cd, 1, 3, 5, 7);
}

INLINE float total_fold(const total *t)
{
    const vf4 a = total_quarter(t), b = a + __builtin_shufflevector(a, a, 2, 3, 2, 3);
    return b[0] + b[1];
}

/* What an f16 can hold. */
INLINE float f16_fit(float x)
{
    return f16_round(x > F16_MAX ? F16_MAX : x < -F16_MAX ? -F16_MAX : x);
}

INLINE float clamp(float x, float lo, float hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* 1 / x, or 0 where that is no number: then every code is 0. */
INLINE float inverse(float x)
{
    const float inv = 1 / x;
    return isfinite(inv) ? inv : 0;
}

INLINE group group_load(const block *b, uint32_t g)
{
    group v;
    v.n = b->f->group_len / LANES;
    for (int i = 0; i < v.n; i++) {
        const size_t at = (size_t)g * b->f->group_len + (size_t)i * LANES;
        memcpy(&v.x[i], b->x + at, sizeof v.x[i]);
        if (b->w)
            memcpy(&v.w[i], b->w + at, sizeof v.w[i]);
        else
            v.w[i] = splat(1);
    }
    return v;
}

/* ---- codes ------------------------------------------------------------------------------- */

/* The nearest of gm_iq4_values: the first, and a step up for each middle that t has passed. */
INLINE vf codes_curved(vf t)
{
    vf q = splat(gm_iq4_values[0]);
    for (int k = 1; k < 16; k++) {
        const float low = gm_iq4_values[k - 1], high = gm_iq4_values[k];
        q += (vf)((vi)splat(high - low) & (t > splat(0.5f * (low + high))));
    }
    return q;
}

/* To nearest, ties to even, by adding and taking away 1.5 * 2^23; a NaN becomes q_min. */
INLINE vf codes(const gm_form *f, vf t)
{
    if (f->curved) return codes_curved(t);
    t = vmin(vmax(t, splat(f->q_min)), splat(f->q_max));
    return (t + 12582912.0f) - 12582912.0f;
}

/* Chooses the codes for value = scale * q - min, and answers the weighted squared error. */
INLINE float codes_choose(const gm_form *f, const group *v, float scale, float min, float *q)
{
    const float inv = inverse(scale);
    total err = {0};
    for (int i = 0; i < v->n; i++) {
        const vf c = codes(f, (v->x[i] + min) * inv);
        const vf e = v->x[i] - (c * scale - min);
        err.p[i % (16 / LANES)] += v->w[i] * e * e;
        if (q) memcpy(q + i * LANES, &c, sizeof c);
    }
    return total_fold(&err);
}

/* ---- a group's scale and minimum as floats ------------------------------------------------- */

typedef struct scale {
    float s, min; /* value = s * q - min */
} scale;

INLINE void extremes(const group *v, float *low, float *high)
{
    vf lo = v->x[0], hi = v->x[0];
    for (int i = 1; i < v->n; i++) {
        lo = vmin(lo, v->x[i]);
        hi = vmax(hi, v->x[i]);
    }
    float l = lo[0], h = hi[0];
    for (int i = 1; i < LANES; i++) {
        l = lo[i] < l ? lo[i] : l;
        h = hi[i] > h ? hi[i] : h;
    }
    *low = l;
    *high = h;
}

/* Plain rounding. Where codes reach further down than up, the value of largest magnitude gets the
 * lowest code, whatever its sign. Minima of K formats are not negative. */
INLINE scale plain_scale(const gm_form *f, const group *v)
{
    float low, high;
    extremes(v, &low, &high);
    if (f->m_max == 0) return (scale){(high > -low ? high : low) / f->q_min, 0};
    if (f->m_min == 0 && low > 0) low = 0;
    return (scale){(high - low) / (float)(f->q_max - f->q_min), -low};
}

/* The at-th of the steps to try. */
INLINE float step_at(const gm_form *f, int at)
{
    return f->first + (f->last - f->first) / (float)(f->n_steps - 1) * (float)at;
}

/* Four choices of codes, each with the scale and minimum that are best for it, and what it explains
 * of the group then. */
typedef struct fits {
    vf4 s, min, gain;
} fits;

/* Lane by lane, the better of both. No branch turns on it, for none could be foreseen. */
INLINE void fits_take(fits *best, const fits *t)
{
    const vi4 more = t->gain > best->gain;
    best->s = select_4(more, t->s, best->s);
    best->min = select_4(more, t->min, best->min);
    best->gain = select_4(more, t->gain, best->gain);
}

INLINE scale fits_best(fits *t)
{
    const fits half = {__builtin_shufflevector(t->s, t->s, 2, 3, 2, 3),
                       __builtin_shufflevector(t->min, t->min, 2, 3, 2, 3),
                       __builtin_shufflevector(t->gain, t->gain, 2, 3, 2, 3)};
    fits_take(t, &half);
    const bool second = t->gain[1] > t->gain[0];
    return (scale){second ? t->s[1] : t->s[0], second ? t->min[1] : t->min[0]};
}

/* Without minima. Where codes reach further down than up, every other scale is turned round: the
 * largest value gets a positive code, of which there is one less. */
INLINE float turned_at(const gm_form *f, int at)
{
    if (f->q_min == -f->q_max) return step_at(f, at);
    return at % 2 ? 0.06f - step_at(f, at / 2) : step_at(f, at / 2);
}

/* Without minima: the error is sum(w x^2) - sum(w x q)^2 / sum(w q^2) once the scale is the best
 * for its codes, so the largest quotient wins. Four scales at a time, because their sums are folded
 * and divided together. */
INLINE scale fit_scale(const gm_form *f, const group *v, scale plain)
{
    const float first = inverse(plain.s);
    const int n = f->q_min == -f->q_max ? f->n_steps : 2 * f->n_steps;
    fits best = {.s = plain.s - (vf4){0}};
    for (int at = 0; at < n; at += 4) {
        total xq[4] = {0}, qq[4] = {0};
        for (int k = 0; k < 4; k++) {
            const float inv = first * turned_at(f, at + k);
            for (int i = 0; i < v->n; i++) {
                const vf q = codes(f, v->x[i] * inv), wq = v->w[i] * q;
                xq[k].p[i % (16 / LANES)] += wq * v->x[i];
                qq[k].p[i % (16 / LANES)] += wq * q;
            }
        }
        const vf4 a = totals_fold(xq), s = a / totals_fold(qq);
        fits_take(&best, &(fits){.s = s, .gain = a * s});
    }
    return fits_best(&best);
}

typedef struct sums {
    double w, x, q, xq, qq;
} sums;

INLINE sums sums_make(const gm_form *f, const group *v, scale at)
{
    const float inv = inverse(at.s);
    total sw = {0}, sx = {0}, sq = {0}, sxq = {0}, sqq = {0};
    for (int i = 0; i < v->n; i++) {
        const vf q = codes(f, (v->x[i] + at.min) * inv), wq = v->w[i] * q;
        sw.p[i % (16 / LANES)] += v->w[i];
        sx.p[i % (16 / LANES)] += v->w[i] * v->x[i];
        sq.p[i % (16 / LANES)] += wq;
        sxq.p[i % (16 / LANES)] += wq * v->x[i];
        sqq.p[i % (16 / LANES)] += wq * q;
    }
    return (sums){total_fold(&sw), total_fold(&sx), total_fold(&sq), total_fold(&sxq),
                  total_fold(&sqq)};
}

/* From the sums of w q, w (x - mean) q and w q^2: of x less its mean, codes explain xq^2 over the sum
 * of w (q - mean q)^2. A minimum below 0, which K formats have not, is held at 0. */
INLINE fits fits_make(const gm_form *f, float w, float mean, vf4 q, vf4 xq, vf4 qq)
{
    const vf4 s = xq / (qq - q * q / w), min = s * q / w - mean;
    const fits free = {s, min, s * xq};
    if (f->m_min != 0) return free;
    const vf4 all = xq + mean * q, s_0 = all / qq;
    const vi4 held = min < 0;
    return (fits){select_4(held, s_0, s), select_4(held, (vf4){0}, min),
                  select_4(held, s_0 * all - w * mean * mean, free.gain)};
}

/* With minima: ranges that end a little within or beyond the values, each end apart from the other,
 * and four at a time as above. */
INLINE scale fit_affine(const gm_form *f, const group *v, scale plain)
{
    const float width = plain.s * (float)(f->q_max - f->q_min);
    total sw = {0}, sx = {0};
    for (int i = 0; i < v->n; i++) {
        sw.p[i % (16 / LANES)] += v->w[i];
        sx.p[i % (16 / LANES)] += v->w[i] * v->x[i];
    }
    const float w = total_fold(&sw), mean = total_fold(&sx) / w;
    fits best = {plain.s - (vf4){0}, plain.min - (vf4){0}, {0}};
    for (int at = 0; at < f->n_steps * f->n_steps; at += 4) {
        const float low = step_at(f, at / f->n_steps), min = plain.min + width * low;
        total q[4] = {0}, xq[4] = {0}, qq[4] = {0};
        for (int k = 0; k < 4; k++) {
            const float high = step_at(f, at % f->n_steps + k);
            const float inv = inverse(plain.s * (1 + low + high));
            for (int i = 0; i < v->n; i++) {
                const vf c = codes(f, (v->x[i] + min) * inv), wc = v->w[i] * c;
                q[k].p[i % (16 / LANES)] += wc;
                xq[k].p[i % (16 / LANES)] += wc * (v->x[i] - mean);
                qq[k].p[i % (16 / LANES)] += wc * c;
            }
        }
        const fits t = fits_make(f, w, mean, totals_fold(q), totals_fold(xq), totals_fold(qq));
        fits_take(&best, &t);
    }
    return fits_best(&best);
}

/* ---- the block --------------------------------------------------------------------------- */

/* The block's floats from the groups': the largest one gets the largest integer. */
INLINE void floats_set(const block *b, const scale *s, trial *t)
{
    float largest = 0, min = 0;
    for (uint32_t g = 0; g < b->n_groups; g++) {
        if (fabsf(s[g].s) > fabsf(largest)) largest = s[g].s;
        if (fabsf(s[g].min) > fabsf(min)) min = s[g].min;
    }
    const bool is_signed = b->f->sc_min < 0;
    t->d = f16_fit(largest / (float)(is_signed ? b->f->sc_min : b->f->sc_max));
    t->dmin = b->f->m_max ? f16_fit(min / (float)b->f->m_max) : 0;
}

INLINE float integer(float x, float unit, float lo, float hi)
{
    if (lo == hi) return lo;
    return clamp(rintf(x * inverse(unit)), lo, hi);
}

/* The groups' integers: those nearest to their floats. */
INLINE void integers_set(const block *b, const scale *s, trial *t)
{
    const gm_form *const f = b->f;
    for (uint32_t g = 0; g < b->n_groups; g++) {
        t->sc[g] = integer(s[g].s, t->d, f->sc_min, f->sc_max);
        t->m[g] = integer(s[g].min, t->dmin, f->m_min, f->m_max);
    }
}

/* The codes of group g for the rest of t. */
INLINE float group_codes(const block *b, uint32_t g, trial *t)
{
    const group v = group_load(b, g);
    float *const q = t->q + g * b->f->group_len;
    return codes_choose(b->f, &v, t->d * t->sc[g], t->dmin * t->m[g], q);
}

/* Integers of group g: the best around those that t has. */
INLINE float best_integers(const block *b, uint32_t g, trial *t)
{
    const gm_form *const f = b->f;
    const group v = group_load(b, g);
    const float sc0 = t->sc[g], m0 = t->m[g];
    float best = INFINITY;
    if (f->sc_min == f->sc_max) return group_codes(b, g, t);
    for (float sc = sc0 - 1; sc <= sc0 + 1; sc++) {
        for (float m = m0 - 1; m <= m0 + 1; m++) {
            if (sc < f->sc_min || sc > f->sc_max || m < f->m_min || m > f->m_max) continue;
            const float err = codes_choose(f, &v, t->d * sc, t->dmin * m, NULL);
            if (!(err < best)) continue;
            best = err;
            t->sc[g] = sc;
            t->m[g] = m;
        }
    }
    return group_codes(b, g, t);
}

/* Everything but the codes and the error, which are yet to be found. */
INLINE void trial_begin(const block *b, const trial *from, trial *t)
{
    t->d = from->d;
    t->dmin = from->dmin;
    for (uint32_t g = 0; g < b->n_groups; g++) {
        t->sc[g] = from->sc[g];
        t->m[g] = from->m[g];
    }
}

/* The best floats for the integers of t and the codes that go with them; false where they are what
 * t has. */
INLINE bool floats_refit(const block *b, trial *t)
{
    const gm_form *const f = b->f;
    const float d = t->d, dmin = t->dmin;
    double aa = 0, am = 0, mm = 0, ax = 0, mx = 0; /* a = sc * q */
    for (uint32_t g = 0; g < b->n_groups; g++) {
        const group v = group_load(b, g);
        const scale at = {t->d * t->sc[g], t->dmin * t->m[g]};
        const sums s = sums_make(f, &v, at);
        const double sc = t->sc[g], m = t->m[g];
        aa += sc * sc * s.qq;
        am += sc * m * s.q;
        mm += m * m * s.w;
        ax += sc * s.xq;
        mx += m * s.x;
    }
    const double det = aa * mm - am * am;
    if (mm > 0 && det > 1e-9 * aa * mm) {
        t->d = f16_fit((float)((mm * ax - am * mx) / det));
        t->dmin = f16_fit((float)((am * ax - aa * mx) / det));
    } else if (aa > 0) {
        t->d = f16_fit((float)(ax / aa));
    }
    return t->d != d || t->dmin != dmin;
}

/* The widest of the loops: floats to the integers that they are. */
INLINE void trial_give(const block *b, const trial *t, gm_qints *out)
{
    const uint32_t n = b->n_groups * b->f->group_len;
    out->d = t->d;
    out->dmin = t->dmin;
    for (uint32_t i = 0; i < n / GM_QGROUP; i++) {
        out->sc[i] = (int16_t)t->sc[i * GM_QGROUP / b->f->group_len];
        out->m[i] = (int16_t)t->m[i * GM_QGROUP / b->f->group_len];
    }
    for (uint32_t i = 0; i < n; i++)
        out->q[i] = (int8_t)t->q[i];
}

INLINE void plain_trial(const block *b, scale *s, trial *t)
{
    for (uint32_t g = 0; g < b->n_groups; g++) {
        const group v = group_load(b, g);
        s[g] = plain_scale(b->f, &v);
    }
    floats_set(b, s, t);
    integers_set(b, s, t);
    t->err = 0;
    for (uint32_t g = 0; g < b->n_groups; g++)
        t->err += group_codes(b, g, t);
}

INLINE void nearest(const block *b, gm_qints *out)
{
    scale s[GROUPS_MAX];
    trial t;
    plain_trial(b, s, &t);
    trial_give(b, &t, out);
}

INLINE void fit(const block *b, gm_qints *out)
{
    const gm_form *const f = b->f;
    scale s[GROUPS_MAX];
    trial trials[2], *best = &trials[0], *t = &trials[1];
    plain_trial(b, s, best);
    for (uint32_t g = 0; g < b->n_groups; g++) {
        const group v = group_load(b, g);
        s[g] = f->m_max ? fit_affine(f, &v, s[g]) : fit_scale(f, &v, s[g]);
    }
    floats_set(b, s, t);
    integers_set(b, s, t);
    for (int turn = 0; turn < f->n_turns; turn++) {
        if (turn > 0 && !floats_refit(b, t)) break;
        t->err = 0;
        for (uint32_t g = 0; g < b->n_groups; g++)
            t->err += best_integers(b, g, t);
        if (!(t->err < best->err)) continue;
        trial *const last = best;
        best = t;
        t = last;
        trial_begin(b, best, t);
    }
    trial_give(b, best, out);
}

/* The same code for each kind of form, so that the compiler knows what the inner loops turn on. */
enum { KIND_FLAT, KIND_SCALED, KIND_AFFINE_FLAT, KIND_AFFINE_16, KIND_AFFINE_32, KIND_CURVED };

INLINE int form_kind(const gm_form *f)
{
    if (f->curved) return KIND_CURVED;
    if (f->m_max == 0) return f->sc_max == 1 ? KIND_FLAT : KIND_SCALED;
    if (f->sc_max == 1) return KIND_AFFINE_FLAT;
    return f->group_len == 16 ? KIND_AFFINE_16 : KIND_AFFINE_32;
}

/* The form, with what follows from its kind spelled out. */
INLINE gm_form form_of(const gm_form *f, int kind)
{
    gm_form k = *f;
    k.curved = kind == KIND_CURVED;
    k.group_len = kind == KIND_SCALED || kind == KIND_AFFINE_16 ? 16 : 32;
    if (kind == KIND_FLAT || kind == KIND_AFFINE_FLAT) k.sc_min = k.sc_max = 1;
    if (kind == KIND_FLAT || kind == KIND_SCALED || kind == KIND_CURVED) k.m_min = k.m_max = 0;
    if (kind == KIND_AFFINE_FLAT) k.m_min = k.m_max = 1;
    if (kind == KIND_AFFINE_16 || kind == KIND_AFFINE_32) k.m_min = 0;
    return k;
}

/* Most models are converted without weights, and then nothing is multiplied with them. */
#define OF_KIND(search, kind)                                                         \
    static void search##_##kind(const gm_form *f, uint32_t block_len, const float *x, \
                                const float *w, gm_qints *out)                        \
    {                                                                                 \
        const gm_form k = form_of(f, kind);                                           \
        const uint32_t n = k.sc_max == 1 ? 1 : block_len / k.group_len;               \
        if (w)                                                                        \
            search(&(block){&k, x, w, n}, out);                                       \
        else                                                                          \
            search(&(block){&k, x, NULL, n}, out);                                    \
    }
#define OF_EACH_KIND(search)                            \
    OF_KIND(search, KIND_FLAT)                          \
    OF_KIND(search, KIND_SCALED)                        \
    OF_KIND(search, KIND_AFFINE_FLAT)                   \
    OF_KIND(search, KIND_AFFINE_16)                     \
    OF_KIND(search, KIND_AFFINE_32)                     \
    OF_KIND(search, KIND_CURVED)                        \
    static gm_fit_fn *const search##_of[] = {           \
        [KIND_FLAT] = search##_KIND_FLAT,               \
        [KIND_SCALED] = search##_KIND_SCALED,           \
        [KIND_AFFINE_FLAT] = search##_KIND_AFFINE_FLAT, \
        [KIND_AFFINE_16] = search##_KIND_AFFINE_16,     \
        [KIND_AFFINE_32] = search##_KIND_AFFINE_32,     \
        [KIND_CURVED] = search##_KIND_CURVED,           \
    }
OF_EACH_KIND(nearest);
OF_EACH_KIND(fit);

void NAME(gm_nearest)(const gm_form *f, uint32_t block_len, const float *x, const float *w,
                      gm_qints *out)
{
    nearest_of[form_kind(f)](f, block_len, x, w, out);
}

void NAME(gm_fit)(const gm_form *f, uint32_t block_len, const float *x, const float *w,
                  gm_qints *out)
{
    fit_of[form_kind(f)](f, block_len, x, w, out);
}
