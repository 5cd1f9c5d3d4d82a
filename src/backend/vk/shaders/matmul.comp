#version 460
// SPDX-License-Identifier: MIT
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

// What is on its way: U rounds of NS rows, and of the columns where they are few.
Cursor rows[NS];
uint64_t x_at[NC], meta_at[NC];
Raw raw[U * NS];
ivec4 x0[U * NC], x1[U * NC];
uvec2 meta[U * NC];
const bool EARLY = NC <= 2; // whether columns are asked for as early as weights

void fetch_columns(uint u)
{
    [[unroll]] for (uint c = 0; c < NC; c++) {
        x0[u * NC + c] = ivec4(U4(x_at[c]).v[u * 16]);
        x1[u * NC + c] = ivec4(U4(x_at[c]).v[u * 16 + 1]);
        meta[u * NC + c] = U2(meta_at[c]).v[u * 8];
    }
}

// Asks for the blocks from b on, as far as the row goes.
void fetch(uint b, uint n_blocks)
{
    [[unroll]] for (uint u = 0; u < U; u++) {
        if (b + 8 * u < n_blocks) {
            [[unroll]] for (uint s = 0; s < NS; s++)
                raw[u * NS + s] = cursor_load(rows[s], u);
            if (EARLY) fetch_columns(u);
        }
    }
}

void go_on()
{
    [[unroll]] for (uint s = 0; s < NS; s++)
        cursor_go(rows[s], U);
    [[unroll]] for (uint c = 0; c < NC; c++) {
        x_at[c] += U * 256;
        meta_at[c] += U * 64;
    }
}

void main()
{
    uint row_first;
    const uint m = matrix_of(row_first), lane = lane_of();
    const uint n = rows_in_step(p.head, p.flags), n_blocks = p.n_cols / GM_VK_BLOCK;
    const uint col_first = gl_WorkGroupID.y * NC;
    if (col_first >= n) return;

    [[unroll]] for (uint s = 0; s < NS; s++) {
        const uint row = min(row_first + group_of() * R + s % R, p.n_rows[m] - 1);
        const Planes pl = planes(p.w[m + s / R], p.n_rows[m], n_blocks);
        rows[s] = cursor_at(pl, row * n_blocks + lane);
    }
    [[unroll]] for (uint c = 0; c < NC; c++) {
        const uint block = min(col_first + c, n - 1) * n_blocks + lane;
        x_at[c] = p.x + uint64_t(block) * 32;
        meta_at[c] = p.meta + uint64_t(block) * 8;
    }
    [[unroll]] for (uint i = 0; i < NS * NC; i++)
        acc[i] = 0;

    fetch(lane, n_blocks);
    for (uint b = lane; b < n_blocks; b += 8 * U) {
        Raw now[U * NS];
        ivec4 now0[U * NC], now1[U * NC];
        uvec2 now_meta[U * NC];
        [[unroll]] for (uint i = 0; i < U * NS; i++)
            now[i] = raw[i];
        if (EARLY) {
            [[unroll]] for (uint i = 0; i < U * NC; i++) {
                now0[i] = x0[i];
                now1[i] = x1[i];
                now_meta[i] = meta[i];
            }
        } else {
            [[unroll]] for (uint u = 0; u < U; u++)
                if (b + 8 * u < n_blocks) fetch_columns(u);
        }
        go_on();
        fetch(b + 8 * U, n_blocks);
        [[unroll]] for (uint u = 0; u < U; u++) {
            if (b + 8 * u < n_blocks) {
                [[unroll]] for (uint s = 0; s < NS; s++) {
                    uint w[8];
                    block_codes(now[u * NS + s], w);
                    [[unroll]] for (uint c = 0; c < NC; c++) {
                        const uint i = u * NC + c;
                        precise const float sum =
                            acc[s * NC + c] +
                            (EARLY ? term(now[u * NS + s], w, now0[i], now1[i], now_meta[i])
                                   : term(now[u * NS + s], w, x0[i], x1[i], meta[i]));
                        acc[s * NC + c] = sum;
                    }
                }
            }
        }
    }
    put(m, row_first, col_first, n);
}
