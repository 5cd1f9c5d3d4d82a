/* SPDX-License-Identifier: MIT */
#include "backend/cpu/kernels.h"

#include <cpuid.h>
#include <string.h>

const uint8_t gm_iq4_codes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                  129, 141, 153, 166, 181, 197, 217, 241};

/* The state that the system saves on a task switch: bits 1, 2 for AVX, 5 to 7 for AVX-512. */
static uint64_t saved_state(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

uint32_t gm_isa_detect(void)
{
    uint32_t a, b, c, d, b7, c7;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_F16C)) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d)) return 0;
    const uint64_t saved = saved_state();
    const uint32_t avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | (uint32_t)bit_AVX512VL;
    uint32_t isa = 0;
    if ((saved & 0x06) == 0x06 && b7 & bit_AVX2) isa |= GM_ISA_AVX2;
    if (isa && (saved & 0xE6) == 0xE6 && (b7 & avx512) == avx512 && c7 & bit_AVX512VNNI)
        isa |= GM_ISA_AVX512;
    return isa;
}

gm_status gm_isa_read(const char *name, uint32_t *isa, gm_err *err)
{
    static const struct {
        const char *name;
        uint32_t isa;
    } rungs[] = {{"c", 0}, {"avx2", GM_ISA_AVX2}, {"avx512", GM_ISA_ALL}};
    *isa = GM_ISA_ALL;
    for (size_t i = 0; name && i < sizeof rungs / sizeof *rungs; i++) {
        if (strcmp(name, rungs[i].name) != 0) continue;
        *isa = rungs[i].isa;
        return GM_OK;
    }
    if (!name) return GM_OK;
    return gm_fail(err, GM_E_ARG, 0, "cpu: instructions %.40s, expected c, avx2 or avx512", name);
}

const char *gm_isa_name(uint32_t isa)
{
    return isa & GM_ISA_AVX512 ? "avx512" : isa & GM_ISA_AVX2 ? "avx2" : "c";
}

void gm_kernels_init(gm_kernels *k, uint32_t isa)
{
    gm_kernels_product_c(k);
    gm_kernels_vec_c(k);
    if (isa & GM_ISA_AVX2) {
        gm_kernels_product_avx2(k);
        gm_kernels_vec_avx2(k);
    }
    if (isa & GM_ISA_AVX512) {
        gm_kernels_product_avx512(k);
        gm_kernels_vec_avx512(k);
    }
}

int gm_kv_index(gm_qtype type)
{
    switch (type) {
    case GM_QTYPE_F32: return 0;
    case GM_QTYPE_F16: return 1;
    case GM_QTYPE_Q8_0: return 2;
    default: return -1;
    }
}

uint32_t gm_kv_row_size(gm_qtype type, uint32_t len)
{
    return type == GM_QTYPE_F32 ? 4 * len : type == GM_QTYPE_F16 ? 2 * len : len / 32 * 34;
}
