#version 460
// SPDX-License-Identifier: MIT
// Products of quantised weights with int8 activations, from one column to NC: decode lives here.
//
// A lane reads 16 bytes of codes of a row at a time; eight lanes read 128 neighbouring bytes. All
// loads of U rounds are asked for before the first is used, so that enough bytes are on their way
// to keep the memory busy. Activations come from the cache: all workgroups read the same ones.
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

void main()
{
    uint row_first;
    const uint m = matrix_of(row_first);
    const uint n = rows_in_step(p.head, p.flags), n_blocks = p.n_cols / GM_VK_BLOCK;
    const uint col_first = gl_WorkGroupID.y * NC;
    if (col_first >= n) return;

    Planes pl[NM];
    uint first[R], column[NC];
    [[unroll]] for (uint i = 0; i < NM; i++)
        pl[i] = planes(p.w[m + i], p.n_rows[m], n_blocks);
    [[unroll]] for (uint r = 0; r < R; r++)
        first[r] = min(row_first + group_of() * R + r, p.n_rows[m] - 1) * n_blocks;
    [[unroll]] for (uint c = 0; c < NC; c++)
        column[c] = min(col_first + c, n - 1) * n_blocks;

    [[unroll]] for (uint i = 0; i < NS * NC; i++)
        acc[i] = 0;

    for (uint b = lane_of(); b < n_blocks; b += 8 * U) {
        Raw raw[U * NS];
        [[unroll]] for (uint u = 0; u < U; u++) {
            [[unroll]] for (uint s = 0; s < NS; s++)
                raw[u * NS + s] = block_load(pl[s / R], first[s % R], min(b + 8 * u, n_blocks - 1));
        }
        [[unroll]] for (uint u = 0; u < U; u++) {
            if (u > 0 && b + 8 * u >= n_blocks) break;
            uint w[NS][8];
            [[unroll]] for (uint s = 0; s < NS; s++)
                block_codes(raw[u * NS + s], w[s]);
            [[unroll]] for (uint c = 0; c < NC; c++) {
                const uint at = column[c] + b + 8 * u;
                const ivec4 x0 = ivec4(U4(p.x).v[at * 2]), x1 = ivec4(U4(p.x).v[at * 2 + 1]);
                const uvec2 meta = U2(p.meta).v[at];
                [[unroll]] for (uint s = 0; s < NS; s++) {
                    precise const float sum = acc[s * NC + c] + term(raw[u * NS + s], w[s], x0, x1, meta);
                    acc[s * NC + c] = sum;
                }
            }
        }
    }
    put(m, row_first, col_first, n);
}
