/* SPDX-License-Identifier: MIT */
/* Every quantised format against a second implementation: one formula a value,
 * in double, written from the formats' description and not from src/quant. Each
 * function below gives value i of a block. Products of these numbers and their
 * difference fit a double, so there is one rounding, and the bits must agree. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/fp16.h"
#include "fixtures/chance.h"
#include "quant/unpack.h"

typedef double (*formula)(const uint8_t *block, int i);

static const int iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                            1,    13,   25,  38,  53,  69,  89,  113};

static double f16(const uint8_t *p)
{
    return (double)gm_read_f16(p);
}

/* 32-blocks: low nibbles are values 0 to 15, high nibbles 16 to 31. */
static int nibble32(const uint8_t *qs, int i)
{
    return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}

static int bit32(const uint8_t *qh, int i)
{
    return qh[i / 8] >> (i % 8) & 1;
}

static double q4_0(const uint8_t *b, int i)
{
    return f16(b) * (nibble32(b + 2, i) - 8);
}

static double q4_1(const uint8_t *b, int i)
{
    return f16(b) * nibble32(b + 4, i) + f16(b + 2);
}

static double q5_0(const uint8_t *b, int i)
{
    return f16(b) * (nibble32(b + 6, i) + 16 * bit32(b + 2, i) - 16);
}

static double q5_1(const uint8_t *b, int i)
{
    return f16(b) * (nibble32(b + 8, i) + 16 * bit32(b + 4, i)) + f16(b + 2);
}

static double q8_0(const uint8_t *b, int i)
{
    return f16(b) * (int8_t)b[2 + i];
}

static double iq4_nl(const uint8_t *b, int i)
{
    return f16(b) * iq4[nibble32(b + 2, i)];
}

/* Scale and minimum of sub-block s of Q4_K and Q5_K, from their 12 bytes. */
static int k_scale(const uint8_t *q, int s)
{
    return s < 4 ? q[s] & 63 : (q[s + 4] & 15) | q[s - 4] >> 6 << 4;
}

static int k_min(const uint8_t *q, int s)
{
    return s < 4 ? q[s + 4] & 63 : q[s + 4] >> 4 | q[s] >> 6 << 4;
}

/* Values come in chunks of 64 over 32 bytes: first the low nibbles, then the high ones. */
static int nibble64(const uint8_t *qs, int i)
{
    const uint8_t byte = qs[i / 64 * 32 + i % 32];
    return i % 64 < 32 ? byte & 15 : byte >> 4;
}

static double q4_k(const uint8_t *b, int i)
{
    const int s = i / 32;
    return f16(b) * k_scale(b + 4, s) * nibble64(b + 16, i) - f16(b + 2) * k_min(b + 4, s);
}

static double q5_k(const uint8_t *b, int i)
{
    const int s = i / 32;
    const int n = nibble64(b + 48, i) + 16 * (b[16 + i % 32] >> s & 1);
    return f16(b) * k_scale(b + 4, s) * n - f16(b + 2) * k_min(b + 4, s);
}

static double q6_k(const uint8_t *b, int i)
{
    const int half = i / 128, k = i % 128 / 32, l = i % 32;
    const uint8_t low = b[64 * half + 32 * (k % 2) + l];
    const uint8_t high = b[128 + 32 * half + l];
    const int q = (k < 2 ? low & 15 : low >> 4) | (high >> (2 * k) & 3) << 4;
    const int scale = (int8_t)b[192 + 8 * half + l / 16 + 2 * k];
    return f16(b + 208) * scale * (q - 32);
}

/* The two bits that Q2_K and Q3_K have of a value, from their 64 bytes. */
static int low2(const uint8_t *qs, int i)
{
    return qs[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
}

static double q3_k(const uint8_t *b, int i)
{
    const uint8_t *const a = b + 96;
    const int s = i / 16;
    const int low = s < 8 ? a[s] & 15 : a[s - 8] >> 4;
    const int scale = (low | (a[8 + s % 4] >> (2 * (s / 4)) & 3) << 4) - 32;
    const int high = b[i % 32] >> (i / 32) & 1;
    return f16(b + 108) * scale * (low2(b + 32, i) - (high ? 0 : 4));
}

static double q2_k(const uint8_t *b, int i)
{
    const uint8_t sc = b[i / 16];
    return f16(b + 80) * (sc & 15) * low2(b + 16, i) - f16(b + 82) * (sc >> 4);
}

static double iq4_xs(const uint8_t *b, int i)
{
    const int s = i / 32;
    const int low = b[4 + s / 2] >> (4 * (s % 2)) & 15;
    const int scale = (low | (gm_read_u16(b + 2) >> (2 * s) & 3) << 4) - 32;
    return f16(b) * scale * iq4[nibble32(b + 8 + 16 * s, i % 32)];
}

static const struct {
    gm_qtype id;
    formula value;
} formats[] = {
    {GM_QTYPE_Q4_0, q4_0}, {GM_QTYPE_Q4_1, q4_1}, {GM_QTYPE_Q5_0, q5_0},
    {GM_QTYPE_Q5_1, q5_1}, {GM_QTYPE_Q8_0, q8_0}, {GM_QTYPE_IQ4_NL, iq4_nl},
    {GM_QTYPE_Q2_K, q2_k}, {GM_QTYPE_Q3_K, q3_k}, {GM_QTYPE_Q4_K, q4_k},
    {GM_QTYPE_Q5_K, q5_k}, {GM_QTYPE_Q6_K, q6_k}, {GM_QTYPE_IQ4_XS, iq4_xs},
};

#define FORMATS (sizeof formats / sizeof *formats)

static void check_blocks(const gm_qtype_info *t, formula value, const uint8_t *row, uint32_t n)
{
    float got[4 * GM_QBLOCK_MAX];
    gm_qtype_expand(t, row, (size_t)n * t->block_len, got);
    for (uint32_t i = 0; i < n * t->block_len; i++) {
        const uint8_t *const block = row + (size_t)(i / t->block_len) * t->block_size;
        const float want = (float)value(block, (int)(i % t->block_len));
        if (gm_f32_bits(got[i]) != gm_f32_bits(want)) {
            fail_msg("%s: value %u is %a, expected %a", t->name, i, (double)got[i], (double)want);
        }
    }
}

/* Any finite f16, denormals included. */
static uint16_t finite16(chance *c)
{
    const uint16_t h = (uint16_t)chance_u32(c);
    return (h & 0x7C00) == 0x7C00 ? (uint16_t)(h & 0x83FF) : h;
}

static void set_scales(const gm_qtype_info *t, uint8_t *block, uint16_t d, uint16_t second)
{
    size_t off[2] = {0};
    const size_t n = chance_scales(t, off);
    assert_true(n >= 1);
    memcpy(block + off[0], &d, 2);
    if (n == 2) memcpy(block + off[1], &second, 2);
}

/* Rows of one to four blocks at any alignment. */
static void test_random_blocks(void **state)
{
    (void)state;
    chance c = {6};
    for (size_t f = 0; f < FORMATS; f++) {
        const gm_qtype_info *const t = gm_qtype_find((uint32_t)formats[f].id);
        for (uint32_t round = 0; round < 1600; round++) {
            uint8_t bytes[4 * 210 + 3];
            const uint32_t n = 1 + round % 4;
            uint8_t *const row = bytes + round % 3;
            for (size_t i = 0; i < n * t->block_size; i++)
                row[i] = (uint8_t)chance_u32(&c);
            for (uint32_t i = 0; i < n; i++)
                set_scales(t, row + i * t->block_size, finite16(&c), finite16(&c));
            check_blocks(t, formats[f].value, row, n);
        }
    }
}

/* All codes 0, all codes full, one bit of the codes alone, with scales at the ends of their range. */
static void test_extreme_blocks(void **state)
{
    (void)state;
    static const uint16_t scales[] = {0x0000, 0x8000, 0x0001, 0x83FF,
                                      0x0400, 0x3C00, 0x7BFF, 0xFBFF};
    for (size_t f = 0; f < FORMATS; f++) {
        const gm_qtype_info *const t = gm_qtype_find((uint32_t)formats[f].id);
        for (uint32_t k = 0; k < 8 * 8; k++) {
            uint8_t block[210];
            memset(block, 0x00, sizeof block);
            set_scales(t, block, scales[k / 8], scales[k % 8]);
            check_blocks(t, formats[f].value, block, 1);
            memset(block, 0xFF, sizeof block);
            set_scales(t, block, scales[k / 8], scales[k % 8]);
            check_blocks(t, formats[f].value, block, 1);
        }
        for (uint32_t bit = 0; bit < 8 * t->block_size; bit++) {
            uint8_t block[210] = {0};
            block[bit / 8] = (uint8_t)(1u << bit % 8);
            set_scales(t, block, 0x3C00, 0x3800);
            check_blocks(t, formats[f].value, block, 1);
        }
    }
}

/* A NaN or infinite scale shows in the values, whatever the codes are. */
static void test_broken_scales(void **state)
{
    (void)state;
    for (size_t f = 0; f < FORMATS; f++) {
        const gm_qtype_info *const t = gm_qtype_find((uint32_t)formats[f].id);
        for (int k = 0; k < 2; k++) {
            uint8_t block[210];
            float got[GM_QBLOCK_MAX];
            memset(block, 0x5A, sizeof block);
            set_scales(t, block, k ? 0x7C00 : 0x7E00, 0x3C00);
            gm_qtype_expand(t, block, t->block_len, got);
            for (uint32_t i = 0; i < t->block_len; i++)
                assert_true(!isfinite(got[i]));
        }
    }
}

static void test_iq4_values(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++)
        assert_int_equal(gm_iq4_values[i], iq4[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_blocks),
        cmocka_unit_test(test_extreme_blocks),
        cmocka_unit_test(test_broken_scales),
        cmocka_unit_test(test_iq4_values),
    };
    return cmocka_run_group_tests_name("t_unpack", tests, NULL, NULL);
}
