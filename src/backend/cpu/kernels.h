/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_CPU_KERNELS_H
#define GM_BACKEND_CPU_KERNELS_H

/* The kernel table of the CPU backend. Filled once, weakest rung first, each rung
 * replacing what it does better, so that a mask of features walks every rung on one
 * machine. All rungs give the same bits: they do the same operations in the same
 * order, sixteen lanes at a time, whatever the width of a register. */

#include "backend/cpu/panel.h"
#include "base/status.h"

#define GM_KERNEL_TYPES 32 /* past the largest gm_qtype */
#define GM_KV_TYPES     3
#define GM_READ_WAYS    3

/* Rungs, as bits of what the processor and the system offer. */
enum { GM_ISA_AVX2 = 1, GM_ISA_AVX512 = 2, GM_ISA_ALL = 3 };

/* KV rows are padded with zeros to a multiple of this. */
#define GM_KV_PAD 32

/* Cells [cell_first, cell_first + n) of one page, of one KV head. */
typedef struct gm_kvcells {
    const uint8_t *base; /* the page's rows of this layer, head, and K or V */
    uint32_t stride;     /* bytes of a row                                  */
    uint32_t cell_first, n;
    uint32_t len;   /* values in a row, padded                              */
    uint32_t group; /* query heads that share the KV head                   */
} gm_kvcells;

/* One row of n plain floats with n_cols rows of activations, x_stride apart: each result goes to
 * out[column * out_stride]. */
typedef struct gm_floatmul {
    const uint8_t *w;
    size_t n;
    const float *x;
    size_t x_stride;
    uint32_t n_cols;
    float *out;
    size_t out_stride;
} gm_floatmul;

typedef struct gm_kernels {
    /* Products of quantised weights: panel.h. */
    gm_tilemul_fn *mul[GM_KERNEL_TYPES]; /* by gm_qtype; NULL for plain floats */

    void (*dots[GM_KERNEL_TYPES])(const gm_floatmul *a); /* by gm_qtype: F32, F16, BF16 */

    /* Activations to int8 as quant/dot.h says. */
    void (*quantise)(const float *x, size_t n, gm_actblock *out);

    /* y = x * (w + offset) / sqrt(mean(x^2) + eps); y may be x. */
    void (*norm)(const float *x, const float *w, size_t n, float eps, float offset, float *y);
    void (*add)(const float *x, size_t n, float *y); /* y += x */

    /* Turns pairs (i, i + half) by the angles whose cosines, then sines, are at cos_sin. */
    void (*rotate)(const float *cos_sin, size_t half, float *x);

    /* gate = gelu_tanh(gate) * up */
    void (*gelu_mul)(const float *up, size_t n, float *gate);

    /* x = exp(x - max), and their sum; cap * tanh(x / cap). */
    float (*exp_sub)(float *x, size_t n, float max);
    void (*softcap)(float *x, size_t n, float cap);
    double (*logsum)(const float *x, size_t n);

    /* For the roof: reads n bytes (a multiple of 1024) in one of GM_READ_WAYS ways; does n rounds of
     * 8-bit products in registers and answers how many operations that were. */
    uint64_t (*read)(const uint8_t *p, size_t n, uint32_t way);
    double (*spin)(uint64_t n);

    /* KV rows of each type: f32, f16, q8_0. */
    void (*kv_store[GM_KV_TYPES])(const float *x, size_t len, uint8_t *row);
    /* s[g * GM_PAGE_LEN + i] = scale * q[g] . k[i] for every cell and head; q is [group, len]. */
    void (*kv_scores[GM_KV_TYPES])(const gm_kvcells *k, const float *q, float scale, float *s);
    /* acc[g] = acc[g] * keep[g] + sum of p[g * GM_PAGE_LEN + i] v[i]; acc is [group, len]. */
    void (*kv_mix[GM_KV_TYPES])(const gm_kvcells *v, const float *p, const float *keep, float *acc);
} gm_kernels;

/* The rungs this machine has: instructions, and registers that the system saves (XCR0). */
uint32_t gm_isa_detect(void);

/* The rungs up to one named "c", "avx2" or "avx512"; all of them for NULL. */
gm_status gm_isa_read(const char *name, uint32_t *isa, gm_err *err);
/* The name of the best rung among these. */
const char *gm_isa_name(uint32_t isa);

/* Fills the table with the best of the rungs in `isa`. */
void gm_kernels_init(gm_kernels *k, uint32_t isa);

/* Index into the KV kernels, or -1 for a type that a cache cannot have; and a row's bytes. */
int gm_kv_index(gm_qtype type);
uint32_t gm_kv_row_size(gm_qtype type, uint32_t len);

/* gm_iq4_values + 128: the codes of the IQ4 formats as unsigned bytes. */
extern const uint8_t gm_iq4_codes[16];

/* The rungs. A file's last word names the instruction set it is compiled for, and each file fills
 * its part of the table: generic/ in portable C, x86/ in what x86-64 processors have. */
void gm_kernels_product_c(gm_kernels *k);
void gm_kernels_vec_c(gm_kernels *k);
void gm_kernels_product_avx2(gm_kernels *k);
void gm_kernels_vec_avx2(gm_kernels *k);
void gm_kernels_product_avx512(gm_kernels *k);
void gm_kernels_vec_avx512(gm_kernels *k);

#endif
