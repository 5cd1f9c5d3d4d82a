/* SPDX-License-Identifier: MIT */
/* Tile times columns, written once for 512-bit and 256-bit registers.
 *
 * No include guard: product_avx512.c and product_avx2.c define the words below and
 * include this file.
 *
 *     V, F, LANES         registers of integers and of floats, and how many rows they
 *                         hold, 4 bytes each
 *     COLUMNS             columns that share codes: as many as registers allow
 *     FOR_COLUMNS(X, ..)  X(.., 1) to X(.., COLUMNS)
 *     v_and v_or v_xor v_srl v_sll v_sra v_add32 v_sub32 v_mul32 v_set8 v_set32
 *     v_shuffle8 v_set_table v_load (any alignment) v_store (aligned)
 *     v_half(p, v)        the f16 in each lane's low half, as floats, to memory
 *     v_halves(p, q)      LANES f16 at q, as floats, to memory
 *     v_dot4(p, w, x, wide)   p + the products of four codes and four activations a lane;
 *                         wide where codes use all eight bits
 *     f_load f_loadu f_storeu f_set f_add f_sub f_mul f_of
 *     V_WIDE_IS_SIGNED    v_dot4 takes wide codes less 128
 *     NAME(x)             the function's name on this rung
 *
 * A format is two functions, both told the type as a constant: `scales` fills the
 * panel's numbers for a tile, and `code` gives four columns of sixteen rows in a
 * register. Everything happens within lanes: a row's bytes never leave its lane, and bit
 * fields of all rows are cut at once. Codes go from `code` straight into the multiplier;
 * with more columns than registers they are cut again for the next ones, on ports that
 * the multiplier leaves free.
 * A block's words are counted as tile.h says: its bytes by fours, without the lone f16.
 * Byte layouts are drawn in quant/unpack*.c. */

#define INLINE       static inline __attribute__((always_inline))
#define FOR_LANES(h) for (uint32_t h = 0; h < GM_PANEL_ROWS; h += LANES)

/* The low four bits of each byte, and the high four. */
INLINE V low4(V x)
{
    return v_and(x, v_set8(15));
}

INLINE V high4(V x)
{
    return v_and(v_srl(x, 4), v_set8(15));
}

INLINE V nibble(V x, bool high)
{
    return high ? high4(x) : low4(x);
}

/* Bits [shift, shift + n) of each byte, for n given by its mask. */
INLINE V bits(V x, uint32_t shift, uint8_t mask)
{
    return v_and(v_srl(x, (int)shift), v_set8(mask));
}

/* Word w of a block, of the rows from h on. */
INLINE V word(const uint8_t *words, uint32_t w, uint32_t h)
{
    return v_load(words + GM_TILE_WORD * w + 4 * h);
}

/* Where a tile's words begin: behind the f16 of its blocks, where it has such. */
INLINE const uint8_t *words_of(gm_qtype type, const uint8_t *tile, uint32_t n_blocks)
{
    switch (type) {
    case GM_QTYPE_Q4_0:
    case GM_QTYPE_Q5_0:
    case GM_QTYPE_Q8_0:
    case GM_QTYPE_IQ4_NL: return tile + (size_t)GM_TILE_HALF * n_blocks;
    case GM_QTYPE_Q3_K:
    case GM_QTYPE_Q6_K: return tile + GM_TILE_HALF;
    default: return tile;
    }
}

/* ---- codes ------------------------------------------------------------------------------ */

/* Bits 4 j .. 4 j + 3 of each lane, one to a byte, as fifth bits. */
INLINE V fifth_bits(V high, uint32_t j)
{
    const V four = v_and(v_srl(high, (int)(4 * j)), v_set32(15));
    return v_sll(v_and(v_mul32(four, v_set32(0x00204081)), v_set8(1)), 4);
}

/* Columns 4 j .. 4 j + 3 of block b of a tile, of the rows from h on. */
INLINE V code(gm_qtype type, const uint8_t *t, uint32_t b, uint32_t j, uint32_t h)
{
    const uint32_t half = b / 4, quarter = b % 4;
    switch (type) {
    case GM_QTYPE_Q4_0: return nibble(word(t, 4 * b + j % 4, h), j >= 4);
    case GM_QTYPE_Q4_1: return nibble(word(t, 5 * b + 1 + j % 4, h), j >= 4);
    case GM_QTYPE_Q5_0:
        return v_or(nibble(word(t, 5 * b + 1 + j % 4, h), j >= 4),
                    fifth_bits(word(t, 5 * b, h), j));
    case GM_QTYPE_Q5_1:
        return v_or(nibble(word(t, 6 * b + 2 + j % 4, h), j >= 4),
                    fifth_bits(word(t, 6 * b + 1, h), j));
    case GM_QTYPE_Q8_0: return v_xor(word(t, 8 * b + j, h), v_set8(0x80));
    case GM_QTYPE_IQ4_NL:
        return v_shuffle8(v_set_table(gm_iq4_codes), nibble(word(t, 4 * b + j % 4, h), j >= 4));
    case GM_QTYPE_IQ4_XS:
        return v_shuffle8(v_set_table(gm_iq4_codes), nibble(word(t, 2 + 4 * b + j % 4, h), j >= 4));
    case GM_QTYPE_Q4_K: return bits(word(t, 4 + b / 2 * 8 + j, h), b % 2 * 4, 15);
    case GM_QTYPE_Q5_K:
        return v_or(bits(word(t, 12 + b / 2 * 8 + j, h), b % 2 * 4, 15),
                    v_sll(bits(word(t, 4 + j, h), b, 1), 4));
    case GM_QTYPE_Q6_K: /* 32 words of low bits, 16 of high ones */
        return v_or(bits(word(t, 16 * half + quarter % 2 * 8 + j, h), quarter / 2 * 4, 15),
                    v_sll(bits(word(t, 32 + 8 * half + j, h), 2 * quarter, 3), 4));
    case GM_QTYPE_Q3_K: /* 8 words of high bits, 16 of low ones */
        return v_or(bits(word(t, 8 + 8 * half + j, h), 2 * quarter, 3),
                    v_sll(bits(word(t, j, h), b, 1), 2));
    default: return bits(word(t, 4 + 8 * half + j, h), 2 * quarter, 3); /* Q2_K */
    }
}

/* ---- scales ----------------------------------------------------------------------------- */

/* The f16 of each of n blocks. */
INLINE void put_halves(const uint8_t *tile, uint32_t n, float (*out)[GM_PANEL_ROWS])
{
    for (uint32_t b = 0; b < n; b++) {
        FOR_LANES(h) v_halves(out[b] + h, tile + GM_TILE_HALF * b + 2 * h);
    }
}

/* d and dmin of a word. */
INLINE void put_pair(const uint8_t *words, uint32_t w, uint32_t b, bool negate, gm_panel *out)
{
    FOR_LANES(h)
    {
        const V both = word(words, w, h), min = v_srl(both, 16);
        v_half(out->d[b] + h, both);
        v_half(out->dmin[b] + h, negate ? v_xor(min, v_set32(0x8000)) : min);
    }
}

/* Byte g % 4 of each lane of bytes[g / 4], for g = 0 .. 15, as int32: unsigned under a mask, less a
 * bias. Group g is half g % 2 of block g / 2. */
INLINE void put_groups(const V *bytes, uint8_t mask, int32_t bias, int32_t (*out)[2][GM_PANEL_ROWS],
                       uint32_t h)
{
    for (uint32_t g = 0; g < 16; g++) {
        const V x = v_and(v_srl(bytes[g / 4], (int)(8 * (g % 4))), v_set32(mask));
        v_store(out[g / 2][g % 2] + h, v_sub32(x, v_set32(bias)));
    }
}

/* Q4_K and Q5_K: three words of 6-bit scales and minima. */
INLINE void put_k_scales(const uint8_t *t, uint32_t h, gm_panel *out)
{
    const V a = word(t, 1, h), b = word(t, 2, h), c = word(t, 3, h), two = v_set8(0x30);
    const V sc[2] = {v_and(a, v_set8(63)), v_or(low4(c), v_and(v_srl(a, 2), two))};
    const V m[2] = {v_and(b, v_set8(63)), v_or(high4(c), v_and(v_srl(b, 2), two))};
    for (uint32_t i = 0; i < 8; i++) {
        const int shift = (int)(8 * (i % 4));
        v_store(out->sc[i][0] + h, v_and(v_srl(sc[i / 4], shift), v_set32(63)));
        v_store(out->m[i][0] + h, v_and(v_srl(m[i / 4], shift), v_set32(63)));
    }
}

/* Q6_K: sixteen signed bytes. */
INLINE void put_q6_scales(const uint8_t *t, uint32_t h, gm_panel *out)
{
    for (uint32_t g = 0; g < 16; g++) {
        const V x = v_sll(word(t, 48 + g / 4, h), (int)(24 - 8 * (g % 4)));
        v_store(out->sc[g / 2][g % 2] + h, v_sra(x, 24));
    }
}

/* Q3_K: three words of 6-bit scales, 32 too large. */
INLINE void put_q3_scales(const uint8_t *t, uint32_t h, gm_panel *out)
{
    const V a = word(t, 24, h), b = word(t, 25, h), c = word(t, 26, h), two = v_set8(0x30);
    const V sc[4] = {v_or(low4(a), v_and(v_sll(c, 4), two)), v_or(low4(b), v_and(v_sll(c, 2), two)),
                     v_or(high4(a), v_and(c, two)), v_or(high4(b), v_and(v_srl(c, 2), two))};
    put_groups(sc, 63, 32, out->sc, h);
}

/* Q2_K: sixteen bytes of a scale and a minimum. */
INLINE void put_q2_scales(const uint8_t *t, uint32_t h, gm_panel *out)
{
    V sc[4], m[4];
    for (uint32_t i = 0; i < 4; i++) {
        sc[i] = word(t, i, h);
        m[i] = v_srl(sc[i], 4);
    }
    put_groups(sc, 15, 0, out->sc, h);
    put_groups(m, 15, 0, out->m, h);
}

/* IQ4_XS: d and the scales' high bits, then a word of their low ones. */
INLINE void put_iq4_scales(const uint8_t *t, uint32_t h, gm_panel *out)
{
    const V first = word(t, 0, h), lows = word(t, 1, h);
    v_half(out->d[0] + h, first);
    for (uint32_t s = 0; s < 8; s++) {
        const V low = v_and(v_srl(lows, (int)(4 * s)), v_set32(15));
        const V high = v_and(v_srl(first, (int)(16 + 2 * s)), v_set32(3));
        v_store(out->sc[s][0] + h, v_sub32(v_or(low, v_sll(high, 4)), v_set32(32)));
    }
}

/* Fills the numbers of the panel that the type's kind reads. */
INLINE void scales(gm_qtype type, const uint8_t *tile, const uint8_t *t, uint32_t n, gm_panel *out)
{
    switch (type) {
    case GM_QTYPE_Q4_0:
    case GM_QTYPE_Q5_0:
    case GM_QTYPE_Q8_0:
    case GM_QTYPE_IQ4_NL: put_halves(tile, n, out->d); break;
    case GM_QTYPE_Q4_1: /* minima are stored as an offset to add; ours is subtracted */
    case GM_QTYPE_Q5_1:
        for (uint32_t b = 0; b < n; b++)
            put_pair(t, (type == GM_QTYPE_Q4_1 ? 5 : 6) * b, b, true, out);
        break;
    case GM_QTYPE_Q4_K:
    case GM_QTYPE_Q5_K:
        put_pair(t, 0, 0, false, out);
        FOR_LANES(h) put_k_scales(t, h, out);
        break;
    case GM_QTYPE_Q6_K:
        put_halves(tile, 1, out->d);
        FOR_LANES(h) put_q6_scales(t, h, out);
        break;
    case GM_QTYPE_Q3_K:
        put_halves(tile, 1, out->d);
        FOR_LANES(h) put_q3_scales(t, h, out);
        break;
    case GM_QTYPE_Q2_K:
        put_pair(t, 20, 0, false, out);
        FOR_LANES(h) put_q2_scales(t, h, out);
        break;
    default: FOR_LANES(h) put_iq4_scales(t, h, out); break; /* IQ4_XS */
    }
}

/* ---- products ---------------------------------------------------------------------------- */

/* Whether scales go with groups of 16. */
INLINE bool has_groups(gm_qtype type)
{
    const gm_panelkind kind = gm_panel_kind(type);
    return kind == GM_PANEL_SC16 || kind == GM_PANEL_SC16_MIN;
}

/* Where the i-th sum of codes times activations begins, so that it ends without what `zero` adds. */
INLINE V less_zero(gm_qtype type, const gm_actblock *x, uint32_t i)
{
    const int32_t zero = gm_panel_zero(type);
    if (zero == 0 || (V_WIDE_IS_SIGNED && zero == GM_PANEL_WIDE)) return v_set32(0);
    if (zero == GM_PANEL_WIDE) return v_set32(x->less_128);
    if (zero == 8) return v_set32(x->less_8);
    return v_set32(-zero * (has_groups(type) ? x->half[i] : x->sum));
}

INLINE V four_of(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return v_set32(four);
}

/* d * S - dmin * M of one block and column, for the rows from h on. p are the sums of codes times
 * activations, of halves where scales go with those. */
INLINE F block_value(gm_qtype type, const gm_panel *w, uint32_t b, uint32_t h, const V p[2],
                     const gm_actblock *x)
{
    const gm_panelkind kind = gm_panel_kind(type);
    const bool by16 = has_groups(type);
    const bool scaled = kind >= GM_PANEL_SC32;
    const uint32_t at = scaled ? 0 : b;
    V s = p[0];
    if (scaled) s = v_mul32(s, v_load(w->sc[b][0] + h));
    if (by16) s = v_add32(s, v_mul32(p[1], v_load(w->sc[b][1] + h)));
    const F ds = f_mul(f_load(w->d[at] + h), f_of(s));
    if (kind == GM_PANEL_FLAT || kind == GM_PANEL_SC32 || kind == GM_PANEL_SC16) return ds;

    V m = v_set32(x->sum);
    if (by16) {
        m = v_add32(v_mul32(v_set32(x->half[0]), v_load(w->m[b][0] + h)),
                    v_mul32(v_set32(x->half[1]), v_load(w->m[b][1] + h)));
    } else if (scaled) {
        m = v_mul32(m, v_load(w->m[b][0] + h));
    }
    return f_sub(ds, f_mul(f_load(w->dmin[at] + h), f_of(m)));
}

/* Where a worker with many columns asks for the bytes of later tiles: as many as the tile has, AHEAD
 * behind it, a line or so with each block that it multiplies. All of them at once would fill the queue
 * of misses and then wait. The distance is several tiles, and stays the same at the last tile of a
 * panel, which may be a short one (PERF.md, attempt 20). */
#define AHEAD 8192
typedef struct asking {
    const uint8_t *next, *end;
    size_t a_block; /* bytes */
} asking;

INLINE asking asking_of(const gm_tilemul *a, uint32_t first, uint32_t n)
{
    const uint8_t *const at = a->tile + AHEAD + a->ahead * first / a->n_cols;
    return (asking){at, at, a->ahead * n / a->n_cols / a->n_blocks};
}

INLINE void ask(asking *q)
{
    q->end += q->a_block;
    for (; q->next < q->end; q->next += 64)
        __builtin_prefetch(q->next, 0, 2);
}

/* The tile times n columns from `first` on, for the rows from h on; t are the tile's words. All but a,
 * t and first are known to the compiler. Formats with two scales a block need two sums a column,
 * others have one. */
INLINE void mul_columns(const gm_tilemul *a, gm_qtype type, const uint8_t *t, uint32_t first, int n,
                        uint32_t h)
{
    const bool wide = gm_panel_zero(type) == GM_PANEL_WIDE;
    const uint32_t n_sums = has_groups(type) ? 2 : 1;
    const gm_acttile *const x = a->x + first;
    asking ahead = asking_of(a, first, (uint32_t)n);
    F acc[COLUMNS];
    for (int c = 0; c < n; c++)
        acc[c] = a->begins ? f_set(0) : f_loadu(a->acc + (first + (size_t)c) * GM_PANEL_ROWS + h);
    for (uint32_t b = 0; b < a->n_blocks; b++) {
        V p[COLUMNS][2];
        if (h == 0) ask(&ahead);
        for (int c = 0; c < n; c++) {
            for (uint32_t i = 0; i < n_sums; i++)
                p[c][i] = less_zero(type, &x[c].block[b], i);
        }
#pragma GCC unroll 8
        for (uint32_t j = 0; j < 8; j++) {
            const V w = code(type, t, b, j, h);
            const uint32_t i = j / 4 % n_sums;
            for (int c = 0; c < n; c++)
                p[c][i] = v_dot4(p[c][i], w, four_of(x[c].block[b].q + 4 * j), wide);
        }
        for (int c = 0; c < n; c++) {
            const gm_actblock *const xc = &x[c].block[b];
            const F v = block_value(type, a->panel, b, h, p[c], xc);
            acc[c] = f_add(acc[c], f_mul(f_set(xc->scale), v));
        }
    }
    for (int c = 0; c < n; c++)
        f_storeu(a->acc + (first + (size_t)c) * GM_PANEL_ROWS + h, acc[c]);
}

/* n columns for each n up to COLUMNS; not inlined, or the compiler would meet functions of ten
 * thousand lines. */
typedef void columns_fn(const gm_tilemul *a, const uint8_t *t, uint32_t first);
#define COLUMNS_OF(name, type, n)                                                                 \
    static __attribute__((noinline)) void NAME(name##_##n)(const gm_tilemul *a, const uint8_t *t, \
                                                           uint32_t first)                        \
    {                                                                                             \
        FOR_LANES(h) mul_columns(a, type, t, first, n, h);                                        \
    }
#define PRODUCT(name, type)                                                 \
    FOR_COLUMNS(COLUMNS_OF, name, type)                                     \
    static void NAME(name)(const gm_tilemul *a)                             \
    {                                                                       \
        columns_fn *const some[] = {FOR_COLUMNS(COLUMNS_NAME, name, type)}; \
        const uint8_t *const t = words_of(type, a->tile, a->n_blocks);      \
        scales(type, a->tile, t, a->n_blocks, a->panel);                    \
        for (uint32_t c = 0, n; c < a->n_cols; c += n) {                    \
            n = a->n_cols - c < COLUMNS ? a->n_cols - c : COLUMNS;          \
            some[n - 1](a, t, c);                                           \
        }                                                                   \
    }
#define COLUMNS_NAME(name, type, n) NAME(name##_##n),
GM_PRODUCTS(PRODUCT)

void NAME(gm_kernels_product)(gm_kernels *k)
{
#define FILL(name, type) k->mul[type] = NAME(name);
    GM_PRODUCTS(FILL)
    k->spin = spin;
}

#undef FOR_LANES
