/* SPDX-License-Identifier: MIT */
/* Taking panels apart, written once for 512-bit and 256-bit registers.
 *
 * No include guard: unpack_avx512.c and unpack_avx2.c define the words below and
 * include this file.
 *
 *     V, LANES            a register, and how many rows it holds, 4 bytes each
 *     v_and v_or v_xor v_srl v_sll v_sra v_sub32 v_mul32 v_set8 v_set32 v_shuffle8
 *     v_store(p, v)       to aligned memory
 *     v_half(p, v)        the f16 in each lane's low half, as floats, to memory
 *     v_halves8(..)       put_halves of eight blocks, where the rung has a faster way; else false
 *     v_load16(row, off, t)   16 bytes of each of LANES rows, transposed: t[j] holds bytes
 *                         4 j .. 4 j + 3 of every row
 *     NAME(x)             the function's name on this rung
 *
 * After v_load16 everything happens within lanes: a row's bytes never leave its lane, and bit
 * fields of all rows are cut at once. Byte layouts are drawn in quant/unpack*.c. */

#define FOR_LANES(h) for (uint32_t h = 0; h < GM_PANEL_ROWS; h += LANES)

/* The low four bits of each byte, and the high four. */
static inline V low4(V x)
{
    return v_and(x, v_set8(15));
}

static inline V high4(V x)
{
    return v_and(v_srl(x, 4), v_set8(15));
}

/* Bits [shift, shift + n) of each byte, for n given by its mask. */
static inline V bits(V x, int shift, uint8_t mask)
{
    return v_and(v_srl(x, shift), v_set8(mask));
}

/* Puts codes of columns 16 part + 4 j .. of a block in place. */
static inline void put(gm_panel *out, uint32_t b, uint32_t j, uint32_t h, V codes)
{
    v_store(out->code[b][j][h], codes);
}

/* The f16 at byte `off` of blocks of `size` bytes of every row, one array for each block. */
static inline void put_halves(const uint8_t *const *row, size_t off, uint32_t size,
                              uint32_t n_blocks, float (*out)[GM_PANEL_ROWS])
{
    if (n_blocks == GM_PANEL_BLOCKS && v_halves8(row, off, size, out)) return;
    uint32_t half[GM_PANEL_BLOCKS][GM_PANEL_ROWS] __attribute__((aligned(64)));
    for (uint32_t r = 0; r < GM_PANEL_ROWS; r++) {
        for (uint32_t b = 0; b < n_blocks; b++)
            half[b][r] = gm_read_u16(row[r] + off + b * size);
    }
    for (uint32_t b = 0; b < n_blocks; b++) {
        FOR_LANES(h) v_half(out[b] + h, v_load(half[b] + h));
    }
}

/* The u32 at byte `off` of blocks of `size` bytes of every row. */
static inline void take_words(const uint8_t *const *row, size_t off, uint32_t size,
                              uint32_t n_blocks, uint32_t (*out)[GM_PANEL_ROWS])
{
    for (uint32_t r = 0; r < GM_PANEL_ROWS; r++) {
        for (uint32_t b = 0; b < n_blocks; b++)
            out[b][r] = gm_read_u32(row[r] + off + b * size);
    }
}

/* ---- blocks of 32 ---------------------------------------------------------------------- */

static inline void put_nibbles(const uint8_t *const *row, size_t off, uint32_t b, gm_panel *out)
{
    FOR_LANES(h)
    {
        V t[4];
        v_load16(row + h, off, t);
        for (uint32_t j = 0; j < 4; j++) {
            put(out, b, j, h, low4(t[j]));
            put(out, b, 4 + j, h, high4(t[j]));
        }
    }
}

static void NAME(q4_0)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    put_halves(row, off, 18, n_blocks, out->d);
    for (uint32_t b = 0; b < n_blocks; b++)
        put_nibbles(row, off + b * 18 + 2, b, out);
}

/* Minima are stored as an offset to add; ours is subtracted. */
static inline void put_negated(const uint8_t *const *row, size_t off, uint32_t size,
                               uint32_t n_blocks, gm_panel *out)
{
    put_halves(row, off, size, n_blocks, out->dmin);
    for (uint32_t b = 0; b < n_blocks; b++) {
        for (uint32_t r = 0; r < GM_PANEL_ROWS; r++)
            out->dmin[b][r] = -out->dmin[b][r];
    }
}

static void NAME(q4_1)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    put_halves(row, off, 20, n_blocks, out->d);
    put_negated(row, off + 2, 20, n_blocks, out);
    for (uint32_t b = 0; b < n_blocks; b++)
        put_nibbles(row, off + b * 20 + 4, b, out);
}

/* Bits 4 j .. 4 j + 3 of each lane, one to a byte, as fifth bits. */
static inline V fifth_bits(V high, uint32_t j)
{
    const V four = v_and(v_srl(high, (int)(4 * j)), v_set32(15));
    return v_sll(v_and(v_mul32(four, v_set32(0x00204081)), v_set8(1)), 4);
}

static inline void put_fives(const uint8_t *const *row, size_t qs, size_t qh, uint32_t size,
                             uint32_t n_blocks, gm_panel *out)
{
    uint32_t high[GM_PANEL_BLOCKS][GM_PANEL_ROWS] __attribute__((aligned(64)));
    take_words(row, qh, size, n_blocks, high);
    for (uint32_t b = 0; b < n_blocks; b++) {
        FOR_LANES(h)
        {
            V t[4];
            const V bit = v_load(high[b] + h);
            v_load16(row + h, qs + b * size, t);
            for (uint32_t j = 0; j < 4; j++) {
                put(out, b, j, h, v_or(low4(t[j]), fifth_bits(bit, j)));
                put(out, b, 4 + j, h, v_or(high4(t[j]), fifth_bits(bit, 4 + j)));
            }
        }
    }
}

static void NAME(q5_0)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    put_halves(row, off, 22, n_blocks, out->d);
    put_fives(row, off + 6, off + 2, 22, n_blocks, out);
}

static void NAME(q5_1)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    put_halves(row, off, 24, n_blocks, out->d);
    put_negated(row, off + 2, 24, n_blocks, out);
    put_fives(row, off + 8, off + 4, 24, n_blocks, out);
}

static void NAME(q8_0)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    put_halves(row, off, 34, n_blocks, out->d);
    for (uint32_t b = 0; b < n_blocks; b++) {
        for (uint32_t part = 0; part < 2; part++) {
            FOR_LANES(h)
            {
                V t[4];
                v_load16(row + h, off + b * 34 + 2 + 16 * part, t);
                for (uint32_t j = 0; j < 4; j++)
                    put(out, b, 4 * part + j, h, v_xor(t[j], v_set8(0x80)));
            }
        }
    }
}

/* 4-bit codes looked up in gm_iq4_values + 128. */
static inline void put_iq4(const uint8_t *const *row, size_t off, uint32_t b, gm_panel *out)
{
    const V table = v_set_table(gm_iq4_codes);
    FOR_LANES(h)
    {
        V t[4];
        v_load16(row + h, off, t);
        for (uint32_t j = 0; j < 4; j++) {
            put(out, b, j, h, v_shuffle8(table, low4(t[j])));
            put(out, b, 4 + j, h, v_shuffle8(table, high4(t[j])));
        }
    }
}

static void NAME(iq4_nl)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    put_halves(row, off, 18, n_blocks, out->d);
    for (uint32_t b = 0; b < n_blocks; b++)
        put_iq4(row, off + b * 18 + 2, b, out);
}

/* ---- blocks of 256 --------------------------------------------------------------------- */

/* Byte g % 4 of each lane of word[g / 4], for g = 0 .. 15, as int32: unsigned under a mask, less a
 * bias. Group g is half g % 2 of block g / 2. */
static inline void put_groups(const V *word, uint8_t mask, int32_t bias,
                              int32_t (*out)[2][GM_PANEL_ROWS], uint32_t h)
{
    for (uint32_t g = 0; g < 16; g++) {
        const V x = v_and(v_srl(word[g / 4], (int)(8 * (g % 4))), v_set32(mask));
        v_store(out[g / 2][g % 2] + h, v_sub32(x, v_set32(bias)));
    }
}

/* The header of Q4_K and Q5_K: d, dmin and the twelve bytes of 6-bit scales and minima. */
static inline void put_k_header(const uint8_t *const *row, size_t off, gm_panel *out)
{
    FOR_LANES(h)
    {
        V t[4];
        v_load16(row + h, off, t);
        v_half(out->d[0] + h, t[0]);
        v_half(out->dmin[0] + h, v_srl(t[0], 16));
        const V sc[2] = {v_and(t[1], v_set8(63)),
                         v_or(low4(t[3]), v_and(v_srl(t[1], 2), v_set8(0x30)))};
        const V m[2] = {v_and(t[2], v_set8(63)),
                        v_or(high4(t[3]), v_and(v_srl(t[2], 2), v_set8(0x30)))};
        for (uint32_t b = 0; b < 8; b++) {
            const int shift = (int)(8 * (b % 4));
            v_store(out->sc[b][0] + h, v_and(v_srl(sc[b / 4], shift), v_set32(63)));
            v_store(out->m[b][0] + h, v_and(v_srl(m[b / 4], shift), v_set32(63)));
        }
    }
}

static void NAME(q4_k)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    (void)n_blocks;
    put_k_header(row, off, out);
    for (uint32_t i = 0; i < 8; i++) { /* 16 bytes: part i % 2 of blocks 2 (i / 2) and the next */
        FOR_LANES(h)
        {
            V t[4];
            v_load16(row + h, off + 16 + 16 * i, t);
            for (uint32_t j = 0; j < 4; j++) {
                put(out, i / 2 * 2, 4 * (i % 2) + j, h, low4(t[j]));
                put(out, i / 2 * 2 + 1, 4 * (i % 2) + j, h, high4(t[j]));
            }
        }
    }
}

static void NAME(q5_k)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    (void)n_blocks;
    put_k_header(row, off, out);
    FOR_LANES(h)
    {
        V high[2][4];
        v_load16(row + h, off + 16, high[0]);
        v_load16(row + h, off + 32, high[1]);
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t b = i / 2 * 2, part = i % 2;
            V t[4];
            v_load16(row + h, off + 48 + 16 * i, t);
            for (uint32_t j = 0; j < 4; j++) {
                const V q = high[part][j];
                put(out, b, 4 * part + j, h, v_or(low4(t[j]), v_sll(bits(q, (int)b, 1), 4)));
                put(out, b + 1, 4 * part + j, h,
                    v_or(high4(t[j]), v_sll(bits(q, (int)b + 1, 1), 4)));
            }
        }
    }
}

/* One 16-byte part of a half of Q6_K: a, b low bits of blocks 0, 2 and 1, 3; q high bits of all. */
static inline void put_sixes(const V *a, const V *b, const V *q, uint32_t block, uint32_t at,
                             uint32_t h, gm_panel *out)
{
    for (uint32_t j = 0; j < 4; j++) {
        put(out, block, at + j, h, v_or(low4(a[j]), v_sll(bits(q[j], 0, 3), 4)));
        put(out, block + 1, at + j, h, v_or(low4(b[j]), v_sll(bits(q[j], 2, 3), 4)));
        put(out, block + 2, at + j, h, v_or(high4(a[j]), v_sll(bits(q[j], 4, 3), 4)));
        put(out, block + 3, at + j, h, v_or(high4(b[j]), v_sll(bits(q[j], 6, 3), 4)));
    }
}

static void NAME(q6_k)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    (void)n_blocks;
    put_halves(row, off + 208, 210, 1, out->d);
    FOR_LANES(h)
    {
        V t[4], u[4], q[4];
        v_load16(row + h, off + 192, t);
        for (uint32_t g = 0; g < 16; g++) { /* signed bytes */
            const V x = v_sll(t[g / 4], (int)(24 - 8 * (g % 4)));
            v_store(out->sc[g / 2][g % 2] + h, v_sra(x, 24));
        }
        for (uint32_t i = 0; i < 4; i++) {
            const size_t half = i / 2, part = i % 2;
            v_load16(row + h, off + 64 * half + 16 * part, t);
            v_load16(row + h, off + 64 * half + 32 + 16 * part, u);
            v_load16(row + h, off + 128 + 32 * half + 16 * part, q);
            put_sixes(t, u, q, (uint32_t)(4 * half), (uint32_t)(4 * part), h, out);
        }
    }
}

static void NAME(q3_k)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    (void)n_blocks;
    FOR_LANES(h)
    {
        V t[4], mask[2][4];
        v_load16(row + h, off + 94, t); /* two bytes of qs, scales[12], d */
        const V a = v_or(v_srl(t[0], 16), v_sll(t[1], 16));
        const V b = v_or(v_srl(t[1], 16), v_sll(t[2], 16));
        const V c = v_or(v_srl(t[2], 16), v_sll(t[3], 16));
        const V two = v_set8(0x30);
        const V sc[4] = {v_or(low4(a), v_and(v_sll(c, 4), two)),
                         v_or(low4(b), v_and(v_sll(c, 2), two)), v_or(high4(a), v_and(c, two)),
                         v_or(high4(b), v_and(v_srl(c, 2), two))};
        put_groups(sc, 63, 32, out->sc, h);
        v_half(out->d[0] + h, v_srl(t[3], 16));
        v_load16(row + h, off, mask[0]);
        v_load16(row + h, off + 16, mask[1]);
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t half = i / 2, part = i % 2;
            v_load16(row + h, off + 32 + 32 * half + 16 * part, t);
            for (uint32_t s = 0; s < 4; s++) {
                for (uint32_t j = 0; j < 4; j++) {
                    const V high = bits(mask[part][j], (int)(4 * half + s), 1);
                    put(out, 4 * half + s, 4 * part + j, h,
                        v_or(bits(t[j], (int)(2 * s), 3), v_sll(high, 2)));
                }
            }
        }
    }
}

static void NAME(q2_k)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    (void)n_blocks;
    FOR_LANES(h)
    {
        V t[4];
        v_load16(row + h, off, t);
        const V m[4] = {v_srl(t[0], 4), v_srl(t[1], 4), v_srl(t[2], 4), v_srl(t[3], 4)};
        put_groups(t, 15, 0, out->sc, h);
        put_groups(m, 15, 0, out->m, h);
        v_load16(row + h, off + 68, t); /* twelve bytes of qs, d, dmin */
        v_half(out->d[0] + h, t[3]);
        v_half(out->dmin[0] + h, v_srl(t[3], 16));
        for (uint32_t i = 0; i < 4; i++) {
            v_load16(row + h, off + 16 + 16 * i, t);
            for (uint32_t s = 0; s < 4; s++) {
                for (uint32_t j = 0; j < 4; j++)
                    put(out, 4 * (i / 2) + s, 4 * (i % 2) + j, h, bits(t[j], (int)(2 * s), 3));
            }
        }
    }
}

static void NAME(iq4_xs)(const uint8_t *const *row, size_t off, uint32_t n_blocks, gm_panel *out)
{
    (void)n_blocks;
    FOR_LANES(h)
    {
        V t[4];
        v_load16(row + h, off, t); /* d and scales_h, scales_l */
        v_half(out->d[0] + h, t[0]);
        for (uint32_t s = 0; s < 8; s++) {
            const V low = v_and(v_srl(t[1], (int)(4 * s)), v_set32(15));
            const V high = v_and(v_srl(t[0], (int)(16 + 2 * s)), v_set32(3));
            v_store(out->sc[s][0] + h, v_sub32(v_or(low, v_sll(high, 4)), v_set32(32)));
        }
    }
    for (uint32_t s = 0; s < 8; s++)
        put_iq4(row, off + 8 + 16 * s, s, out);
}

#undef FOR_LANES
