/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/fp16.h"
#include "fixtures/chance.h"

/* The value of f16 bits by the definition, in double. */
static double f16_value(uint16_t h)
{
    const int e = h >> 10 & 0x1F, m = h & 0x3FF;
    const double v = e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25);
    return h & 0x8000 ? -v : v;
}

/* f narrowed to `digits` bits of mantissa and exponents from e_min on, to nearest even, in double:
 * everything here is exact but the one rounding. */
static double narrow(float f, int digits, int e_min, double max)
{
    if (f == 0 || isinf(f)) return (double)f;
    int e = 0;
    frexp((double)f, &e); /* |f| in [2^(e-1), 2^e) */
    const int unit = (e - 1 < e_min ? e_min : e - 1) - digits;
    const double r = ldexp(nearbyint(ldexp((double)f, -unit)), unit);
    return fabs(r) > max ? copysign((double)INFINITY, (double)f) : r;
}

static void test_every_f16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = gm_f16_to_f32((uint16_t)h);
        if ((h & 0x7C00) == 0x7C00) {
            assert_int_equal(isnan(f) != 0, (h & 0x3FF) != 0);
            assert_int_equal(signbit(f) != 0, h >> 15);
            const uint16_t back = gm_f32_to_f16(f);
            assert_int_equal(h & 0x3FF ? (back & 0x7E00) == 0x7E00 : back == h, 1);
            assert_int_equal(back >> 15, h >> 15);
            continue;
        }
        assert_true((double)f == f16_value((uint16_t)h));
        assert_int_equal(signbit(f) != 0, h >> 15);
        assert_int_equal(gm_f32_to_f16(f), h);
    }
}

static void check_narrow(uint32_t bits)
{
    const float f = gm_f32_from_bits(bits);
    const uint16_t h = gm_f32_to_f16(f), b = gm_f32_to_bf16(f);
    const float hf = gm_f16_to_f32(h), bf = gm_bf16_to_f32(b);
    if (isnan(f)) {
        assert_true(isnan(hf) && isnan(bf) && (h & 0x200) && (b & 0x40));
    } else if ((double)hf != narrow(f, 10, -14, 65504) ||
               (double)bf != narrow(f, 7, -126, 0x1.FEp127)) {
        fail_msg("%08x became f16 %04x and bf16 %04x", bits, h, b);
    }
    assert_int_equal(h >> 15, bits >> 31);
    assert_int_equal(b >> 15, bits >> 31);
}

/* Random floats of every exponent, and all that lie around a border or a tie. */
static void test_narrowing(void **state)
{
    (void)state;
    chance c = {4};
    for (int i = 0; i < 400000; i++)
        check_narrow(chance_u32(&c));
    for (uint32_t e = 0; e < 512; e++) {
        for (uint32_t m = 0; m < 4096; m++)
            check_narrow(e << 23 | (m >> 4 & 0xFF) << 15 | (m & 8 ? 0x4000 : 0) |
                         (m & 4 ? 0x1000 : 0) | (m & 2 ? 0x0FFF : 0) | (m & 1));
    }
    static const struct {
        float f;
        uint16_t f16;
    } known[] = {{65504, 0x7BFF},      {65519.996f, 0x7BFF},   {65520, 0x7C00},
                 {0x1p-24f, 0x0001},   {0x1p-25f, 0x0000},     {0x1.000002p-25f, 0x0001},
                 {0x1.8p-24f, 0x0002}, {0x1.FFAp-15f, 0x03FF}, {0x1.FFCp-15f, 0x0400},
                 {1e-45f, 0x0000},     {-0.0f, 0x8000},        {-1e30f, 0xFC00}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(gm_f32_to_f16(known[i].f), known[i].f16);
}

static void test_every_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = gm_bf16_to_f32((uint16_t)h);
        assert_int_equal(gm_f32_bits(f), h << 16);
        if (!isnan(f)) assert_int_equal(gm_f32_to_bf16(f), h);
    }
}

static void test_reads_any_alignment(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0xFF, 0x00, 0x3C, 0x80, 0x3F, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66};
    assert_int_equal(gm_read_u16(bytes + 1), 0x3C00);
    assert_true(gm_read_f16(bytes + 1) == 1.0f);
    assert_int_equal(gm_read_u32(bytes + 1), 0x3F803C00);
    assert_true(gm_read_u64(bytes + 3) == 0x6655443322113F80u);
    assert_int_equal(gm_f32_bits(gm_read_f32(bytes + 5)), 0x44332211);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_f16),
        cmocka_unit_test(test_narrowing),
        cmocka_unit_test(test_every_bf16),
        cmocka_unit_test(test_reads_any_alignment),
    };
    return cmocka_run_group_tests_name("t_fp16", tests, NULL, NULL);
}
