/* SPDX-License-Identifier: MIT */
#include "quant/qtype.h"

#include <strings.h>

#include "base/fp16.h"
#include "base/mem.h"
#include "quant/pack.h"
#include "quant/unpack.h"

static const gm_qtype_info table[] = {
    {GM_QTYPE_F32, "f32", 1, 4, NULL, NULL},
    {GM_QTYPE_F16, "f16", 1, 2, NULL, NULL},
    {GM_QTYPE_BF16, "bf16", 1, 2, NULL, NULL},
    {GM_QTYPE_Q8_0, "q8_0", 32, 34, gm_q8_0_unpack, gm_q8_0_pack},
    {GM_QTYPE_Q4_0, "q4_0", 32, 18, gm_q4_0_unpack, gm_q4_0_pack},
    {GM_QTYPE_Q4_1, "q4_1", 32, 20, gm_q4_1_unpack, gm_q4_1_pack},
    {GM_QTYPE_Q5_0, "q5_0", 32, 22, gm_q5_0_unpack, gm_q5_0_pack},
    {GM_QTYPE_Q5_1, "q5_1", 32, 24, gm_q5_1_unpack, gm_q5_1_pack},
    {GM_QTYPE_Q2_K, "q2_k", 256, 84, gm_q2_k_unpack, gm_q2_k_pack},
    {GM_QTYPE_Q3_K, "q3_k", 256, 110, gm_q3_k_unpack, gm_q3_k_pack},
    {GM_QTYPE_Q4_K, "q4_k", 256, 144, gm_q4_k_unpack, gm_q4_k_pack},
    {GM_QTYPE_Q5_K, "q5_k", 256, 176, gm_q5_k_unpack, gm_q5_k_pack},
    {GM_QTYPE_Q6_K, "q6_k", 256, 210, gm_q6_k_unpack, gm_q6_k_pack},
    {GM_QTYPE_IQ4_NL, "iq4_nl", 32, 18, gm_iq4_nl_unpack, gm_iq4_nl_pack},
    {GM_QTYPE_IQ4_XS, "iq4_xs", 256, 136, gm_iq4_xs_unpack, gm_iq4_xs_pack},
};

#define TABLE_LEN (sizeof table / sizeof *table)

const gm_qtype_info *gm_qtype_at(size_t i)
{
    return i < TABLE_LEN ? &table[i] : NULL;
}

const gm_qtype_info *gm_qtype_find(uint32_t id)
{
    for (size_t i = 0; i < TABLE_LEN; i++) {
        if ((uint32_t)table[i].id == id) return &table[i];
    }
    return NULL;
}

const gm_qtype_info *gm_qtype_find_name(gm_str name)
{
    for (size_t i = 0; i < TABLE_LEN; i++) {
        const size_t len = strlen(table[i].name);
        if (len == name.len && strncasecmp(table[i].name, name.p, len) == 0) return &table[i];
    }
    return NULL;
}

const char *gm_qtype_name(uint32_t id)
{
    static const char *const others[] = {
        [9] = "q8_1",   [15] = "q8_k",  [16] = "iq2_xxs", [17] = "iq2_xs", [18] = "iq3_xxs",
        [19] = "iq1_s", [21] = "iq3_s", [22] = "iq2_s",   [24] = "i8",     [25] = "i16",
        [26] = "i32",   [27] = "i64",   [28] = "f64",     [29] = "iq1_m",  [34] = "tq1_0",
        [35] = "tq2_0", [39] = "mxfp4", [40] = "nvfp4",
    };
    const gm_qtype_info *const t = gm_qtype_find(id);
    if (t) return t->name;
    const char *const other = id < sizeof others / sizeof *others ? others[id] : NULL;
    return other ? other : "unknown";
}

const gm_qtype_info *gm_qtype_fit(const gm_qtype_info *t, uint64_t cols)
{
    static const struct {
        gm_qtype from, to;
    } fallbacks[] = {
        {GM_QTYPE_Q2_K, GM_QTYPE_Q4_0}, {GM_QTYPE_Q3_K, GM_QTYPE_Q4_0},
        {GM_QTYPE_Q4_K, GM_QTYPE_Q5_0}, {GM_QTYPE_Q5_K, GM_QTYPE_Q5_1},
        {GM_QTYPE_Q6_K, GM_QTYPE_Q8_0}, {GM_QTYPE_IQ4_XS, GM_QTYPE_IQ4_NL},
    };
    for (size_t i = 0; i < sizeof fallbacks / sizeof *fallbacks; i++) {
        if (fallbacks[i].from == t->id && cols % t->block_len != 0)
            return gm_qtype_find((uint32_t)fallbacks[i].to);
    }
    return t;
}

bool gm_qtype_row_size(const gm_qtype_info *t, uint64_t cols, uint64_t *size)
{
    *size = 0;
    if (cols % t->block_len != 0) return false;
    return gm_size_mul(cols / t->block_len, t->block_size, size);
}

/* The format's own value, with the products in this order: others compute the same bits. */
static void expand_block(const gm_qints *b, uint32_t block_len, float *out)
{
    for (uint32_t i = 0; i < block_len; i++) {
        const uint32_t g = i / GM_QGROUP;
        out[i] = b->d * (float)b->sc[g] * (float)b->q[i] - b->dmin * (float)b->m[g];
    }
}

void gm_qtype_expand(const gm_qtype_info *t, const uint8_t *row, size_t n, float *out)
{
    switch (t->id) {
    case GM_QTYPE_F32: memcpy(out, row, n * sizeof *out); return;
    case GM_QTYPE_F16:
        for (size_t i = 0; i < n; i++)
            out[i] = gm_read_f16(row + 2 * i);
        return;
    case GM_QTYPE_BF16:
        for (size_t i = 0; i < n; i++)
            out[i] = gm_bf16_to_f32(gm_read_u16(row + 2 * i));
        return;
    default: break;
    }
    gm_qints ints;
    for (size_t i = 0; i < n; i += t->block_len) {
        t->unpack(row + i / t->block_len * t->block_size, &ints);
        expand_block(&ints, t->block_len, out + i);
    }
}
