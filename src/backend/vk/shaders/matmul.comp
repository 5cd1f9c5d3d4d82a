#version 460
/* SPDX-License-Identifier: MIT */
// Products of quantised weights with int8 activations, from one column to NC: decode lives here.
//
// A lane reads 16 bytes of codes of a row at a time; eight lanes read 128 neighbouring bytes. The
// loads of the next U rounds are asked for before this one's are used, so that bytes are on their
// way all the time. Activations come from the cache: all workgroups read the same ones.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/dot.glsl"
#include "inc/weights.glsl"
#include "inc/product.glsl"

// One block of a row with one column's: dx * (d * S - dmin * M).
float term(Raw raw, uint w[8], ivec4 x0, ivec4 x1, uvec2 meta)
{
    int s0 = 0, s1 = 0;
    [[unroll]] for (int i = 0; i < 4; i++) {
        s0 += dot4(int(w[i]), x0[i]);
        s1 += dot4(int(w[i + 4]), x1[i]);
    }
    const ivec2 sums = ivec2(bitfieldExtract(int(meta.y), 0, 16), int(meta.y) >> 16);
    const ivec2 sc = block_sc(raw);
    const int s = sc.x * (s0 - ZERO * sums.x) + sc.y * (s1 - ZERO * sums.y);
    const vec2 d = block_d(raw);
#if HAS_MIN
    const ivec2 m = block_min(raw);
    precise const float t = d.x * float(s) - d.y * float(m.x * sums.x + m.y * sums.y);
#else
    precise const float t = d.x * float(s);
#endif
    precise const float scaled = uintBitsToFloat(meta.x) * t;
    return scaled;
}

// What is on its way, two halves of it: U rounds of NS rows, and of the columns if X is EARLY.
// While one half is used, the other is being filled. A single column is read once, into shared
// memory: as two arrays, so that lanes side by side have no bank in common.
layout(constant_id = ID_X) const uint X = 0;
#define X_LATE   0
#define X_EARLY  1
#define X_SHARED 2
layout(constant_id = ID_BLOCKS) const uint BLOCKS = 1; // of the column in shared memory
shared uvec4 column0[BLOCKS], column1[BLOCKS];
shared uvec2 column_meta[BLOCKS];
Cursor rows[NS];
uint64_t x_at[NC], meta_at[NC];
Raw raw[2 * U * NS];
ivec4 x0[2 * U * NC], x1[2 * U * NC];
uvec2 meta[2 * U * NC];

void fetch_columns(uint h, uint u, uint behind)
{
    [[unroll]] for (uint c = 0; c < NC; c++) {
        const uint i = (h * U + u) * NC + c;
        x0[i] = ivec4(U4(x_at[c] - 256 * behind).v[u * 16]);
        x1[i] = ivec4(U4(x_at[c] - 256 * behind).v[u * 16 + 1]);
        meta[i] = U2(meta_at[c] - 64 * behind).v[u * 8];
    }
}

// Asks for the U rounds from block b on, as far as the row goes, and goes on.
void fetch(uint h, uint b, uint n_blocks)
{
    [[unroll]] for (uint u = 0; u < U; u++) {
        if (b + 8 * u < n_blocks) {
            [[unroll]] for (uint s = 0; s < NS; s++)
                raw[(h * U + u) * NS + s] = cursor_load(rows[s], u);
            if (X == X_EARLY) fetch_columns(h, u, 0);
        }
    }
    [[unroll]] for (uint s = 0; s < NS; s++)
        cursor_go(rows[s], U);
    [[unroll]] for (uint c = 0; c < NC; c++) {
        x_at[c] += U * 256;
        meta_at[c] += U * 64;
    }
}

// Adds the U rounds from block b on.
void use(uint h, uint b, uint n_blocks)
{
    [[unroll]] for (uint u = 0; u < U; u++) {
        if (b + 8 * u < n_blocks) {
            if (X == X_LATE) fetch_columns(h, u, 2 * U);
            if (X == X_SHARED) {
                x0[h * U + u] = ivec4(column0[b + 8 * u]);
                x1[h * U + u] = ivec4(column1[b + 8 * u]);
                meta[h * U + u] = column_meta[b + 8 * u];
            }
            [[unroll]] for (uint s = 0; s < NS; s++) {
                const Raw r = raw[(h * U + u) * NS + s];
                uint w[8];
                block_codes(r, w);
                [[unroll]] for (uint c = 0; c < NC; c++) {
                    const uint i = (h * U + u) * NC + c;
                    precise const float sum = acc[s * NC + c] + term(r, w, x0[i], x1[i], meta[i]);
                    acc[s * NC + c] = sum;
                }
            }
        }
    }
}

void share_column(uint col, uint n_blocks)
{
    const uint first = col * n_blocks;
    for (uint i = gl_LocalInvocationIndex; i < n_blocks; i += gl_WorkGroupSize.x) {
        column0[i] = U4(p.x).v[(first + i) * 2];
        column1[i] = U4(p.x).v[(first + i) * 2 + 1];
        column_meta[i] = U2(p.meta).v[first + i];
    }
    barrier();
}

void main()
{
    uint row_first;
    const uint m = matrix_of(row_first), lane = lane_of();
    const uint n = rows_in_step(p.head, p.flags), n_blocks = p.n_cols / GM_VK_BLOCK;
    const uint col_first = gl_WorkGroupID.y * N_OUT;
    if (col_first >= n) return;

    [[unroll]] for (uint s = 0; s < NS; s++) {
        const uint row = min(row_first + group_of() * R + s % R, p.n_rows[m] - 1);
        const Planes pl = planes(p.w[m + s / R], p.n_rows[m], n_blocks);
        rows[s] = cursor_at(pl, n_blocks, row, lane);
    }
    [[unroll]] for (uint c = 0; c < NC; c++) {
        const uint col = min(col_first + c / PLANES, n - 1);
        const uint block = col * n_blocks + c % PLANES * p.plane + lane;
        x_at[c] = p.x + uint64_t(block) * 32;
        meta_at[c] = p.meta + uint64_t(block) * 8;
    }
    [[unroll]] for (uint i = 0; i < NS * NC; i++)
        acc[i] = 0;

    fetch(0, lane, n_blocks);
    if (X == X_SHARED) share_column(col_first, n_blocks);
    for (uint b = lane; b < n_blocks; b += 16 * U) {
        fetch(1, b + 8 * U, n_blocks);
        use(0, b, n_blocks);
        fetch(0, b + 16 * U, n_blocks);
        use(1, b + 8 * U, n_blocks);
    }
    put(m, row_first, col_first, n);
}
