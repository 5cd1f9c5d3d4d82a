#version 460
/* SPDX-License-Identifier: MIT */
// Products of quantised weights with activations of float16, by matrices whose fragments lanes load
// for themselves: nothing is staged, and nobody waits for anybody before the end; but for STAGE.
//
// Which of a row's values come in which order does not matter as long as both sides agree. So lane
// 4 g + t has block t of four, of rows g and g + 8 and of column g (inc/half_mma.glsl): scales are
// its own, and eight matrices take the 128 values of a chunk. Columns were written so by the kernel
// before (columns_put), weights lie so in their bands already.
//
// WK subgroups have a run of a row's chunks each, and their sums are added in order. How many
// follows from the matrix alone (vk_fragment.c), so that a result has the same bits in every other
// shape, and whatever columns are beside it.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/weights.glsl"
#include "inc/pieces.glsl"
#include "inc/operands.glsl"
#include "inc/norms.glsl"
#define FRONT_COLUMNS
#include "inc/front.glsl"
#include "inc/half_weights.glsl"
#include "inc/half_mma.glsl"

layout(constant_id = ID_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = ID_TM) const uint TM = 1; // tiles of 16 rows of a subgroup, of each matrix
layout(constant_id = ID_TN) const uint TN = 1; // tiles of eight columns
layout(constant_id = ID_U) const uint U = 1;   // chunks of weights on their way
layout(constant_id = ID_AHEAD) const uint AHEAD = 0; // units of columns; divides 4 U
layout(constant_id = ID_WM) const uint WM = 1; // subgroups that have rows of their own
layout(constant_id = ID_WK) const uint WK = 1; // subgroups that have runs of their own
// 1: subgroups read a chunk of their columns together, into shared memory, while they work on the
// one before (WK is 1 then). 64 columns are more than the first cache has for a dozen subgroups.
layout(constant_id = ID_STAGE) const uint STAGE = 0;
const uint NT = NM * TM;          // tiles of rows
const uint OUTS = WM * TM * 16;   // results of a workgroup for each column
const uint PITCH = NM * OUTS + 4; // of a column of them: no bank conflicts
const uint RING = AHEAD > 0 && STAGE == 0 ? AHEAD : 1;
const uint CHUNK = 4 * 32; // of 16 bytes: a chunk of eight columns
const uint STAGED = STAGE == 1 ? TN * CHUNK : 1;
const uint EACH = (STAGED + WM * 32 - 1) / (WM * 32); // that a lane brings

shared float results[WK * GM_VK_COLUMNS * PITCH];
shared uvec4 staged[2 * STAGED]; // two chunks in turn

Planes matrices[NM];
Cursor at[TM];
Raw raw[U * NT * 2]; // on their way
uint64_t column_at[TN];
uvec4 column[RING * TN];
uvec4 brought[EACH];
Sums acc[NT * TN];

uint lane()
{
    return half_lane() % 32;
}

// The subgroup's number among those that have rows, and among those that have runs.
uint wm()
{
    return half_lane() / 32 % WM;
}

uint wk()
{
    return half_lane() / 32 / WM;
}

// Asks for a unit of every column, counted from the chunk's first one.
void fetch_columns(uint place, uint chunk, uint unit, uint end)
{
    const uint there = min(chunk + unit / 4, end - 1);
    [[unroll]] for (uint tn = 0; tn < TN; tn++)
        column[place * TN + tn] = input4(column_at[tn] + uint64_t(there * 2048), unit % 4 * 32);
}

// The same of a whole chunk, for all subgroups: its i-th 16 bytes are in tile i / CHUNK. Tiles past
// the last are that one again.
void fetch_chunk(uint chunk, uint end, uint col_first, uint n)
{
    const uint there = min(chunk, end - 1);
    [[unroll]] for (uint k = 0; k < EACH; k++) {
        const uint i = half_lane() + k * WM * 32;
        const uint tile = min(col_first / GM_VK_COLUMNS + i / CHUNK, (n - 1) / GM_VK_COLUMNS);
        brought[k] = input4(p.x, (tile * end + there) * CHUNK + i % CHUNK);
    }
}

void stage_chunk(uint chunk)
{
    [[unroll]] for (uint k = 0; k < EACH; k++) {
        const uint i = half_lane() + k * WM * 32;
        if (i < STAGED) staged[chunk % 2 * STAGED + i] = brought[k];
    }
    barrier();
}

// Asks for a chunk of every row; past the end it is the last one again.
void fetch(uint u, uint chunk, uint end)
{
    const uint there = min(chunk, end - 1);
    [[unroll]] for (uint tm = 0; tm < TM; tm++) {
        const Cursor c = cursor_on(at[tm], (there & 1) * 4);
        [[unroll]] for (uint i = 0; i < NM * 2; i++)
            raw[(u * NT + i / 2 * TM + tm) * 2 + i % 2] =
                cursor_load(matrices[i / 2], c, there >> 1, i % 2 * 8);
    }
}

// Adds a chunk, which has come, and asks for the one U chunks behind. One past the end counts 0.
void use(uint u, uint chunk, uint end)
{
    Raw come[NT * 2];
    [[unroll]] for (uint i = 0; i < NT * 2; i++)
        come[i] = raw_cut(raw[u * NT * 2 + i], at[0].shift, chunk < end);
    fetch(u, chunk + U, end);
    HalfScale scale[NT * 2];
    [[unroll]] for (uint i = 0; i < NT * 2; i++)
        scale[i] = half_scale(come[i]);
    HALF_LOOP for (uint unit = 0; unit < 4; unit++) {
        uvec4 x[TN];
        const uint place = (u * 4 + unit) % RING;
        if (AHEAD == 0 && STAGE == 0) fetch_columns(place, chunk, unit, end);
        [[unroll]] for (uint tn = 0; tn < TN; tn++)
            x[tn] = STAGE == 0 ? column[place * TN + tn]
                             : staged[chunk % 2 * STAGED + tn * CHUNK + unit * 32 + lane()];
        if (AHEAD > 0 && STAGE == 0) fetch_columns(place, chunk, unit + AHEAD, end);
        uvec4 w[NT * 2];
        [[unroll]] for (uint i = 0; i < NT * 2; i++)
            w[i] = half_weights(come[i], scale[i], unit);
        HALF_LOOP for (uint k = 0; k < 2; k++) {
            HalfA a[NT];
            [[unroll]] for (uint i = 0; i < NT; i++) {
                const uvec4 words = uvec4(w[2 * i][2 * k], w[2 * i][2 * k + 1],
                                          w[2 * i + 1][2 * k], w[2 * i + 1][2 * k + 1]);
                half_a(a[i], words);
            }
            HALF_LOOP for (uint tn = 0; tn < TN; tn++) {
                HalfB b;
                const uvec2 two = uvec2(x[tn][2 * k], x[tn][2 * k + 1]);
                half_b(b, two);
                HALF_LOOP for (uint i = 0; i < NT; i++)
                    half_mma(a[i], b, acc[i * TN + tn]);
            }
        }
    }
}

// The sums of eight columns lie as [run][column][row], those of up behind those of gate.
void share_results(uint tn)
{
    const uint g = lane() / 4, t = lane() % 4;
    barrier();
    [[unroll]] for (uint i = 0; i < NT * TN; i++) {
        if (i % TN != tn) continue; // tn is not known where this is compiled, i is
        const uint tile = i / TN, row = tile / TM * OUTS + (wm() * TM + tile % TM) * 16 + g;
        [[unroll]] for (uint j = 0; j < 4; j++) {
            const uint to = (wk() * GM_VK_COLUMNS + 2 * t + j % 2) * PITCH + row + j / 2 * 8;
            results[to] = acc[i][j];
        }
    }
    barrier();
}

vec4 result(uint col, uint row)
{
    vec4 sum = vec4(0);
    [[unroll]] for (uint k = 0; k < WK; k++) {
        const uint from = (k * GM_VK_COLUMNS + col) * PITCH + row;
        precise const vec4 next =
            sum + vec4(results[from], results[from + 1], results[from + 2], results[from + 3]);
        sum = next;
    }
    return sum;
}

// Eight lanes have 32 rows of a column.
void put(uint m, uint row_first, uint col_first, uint n)
{
    const uint64_t dst = GLU == 1 ? p.dst[0] : p.dst[m];
    const uint n_rows = p.n_rows[m];
    [[dont_unroll]] for (uint i = half_lane(); i < 2 * OUTS; i += gl_WorkGroupSize.x) {
        const uint c = i / (OUTS / 4), r = i % (OUTS / 4) * 4;
        const uint col = col_first + c, row = row_first + r;
        vec4 x = result(c, r);
        if (GLU == 1) {
            const vec4 up = result(c, OUTS + r);
            precise const vec4 h =
                vec4(gm_gelu(x.x), gm_gelu(x.y), gm_gelu(x.z), gm_gelu(x.w)) * up;
            x = h;
        }
        if (dst != 0 && col < n) {
            [[unroll]] for (uint j = 0; j < 4; j++)
                if (row + j < n_rows) CF1(dst).v[col * n_rows + row + j] = x[j];
        }
        if (GLU == 1 && p.dst[1] != 0)
            round_lanes(x, p.dst[1], p.dst[2], col, row / GM_VK_BLOCK, n_rows / GM_VK_BLOCK, 0,
                        col < n && row < n_rows);
    }
}

void multiply(uint n)
{
    uint row_first;
    const uint m = matrix_of(OUTS, row_first), n_blocks = p.n_cols / GM_VK_BLOCK;
    const uint col_first = col_tile() * TN * GM_VK_COLUMNS;
    if (col_first >= n) return;

    // Tiles past the matrix' end are its last one again, and so are columns.
    [[unroll]] for (uint tm = 0; tm < TM; tm++) {
        const uint band = row_first / 16 + wm() * TM + tm;
        at[tm] = cursor_at(n_blocks, min(band, (p.n_rows[m] - 1) / 16) * 16 + lane() / 4,
                           lane() % 4);
    }
    [[unroll]] for (uint k = 0; k < NM; k++)
        matrices[k] = planes(p.w[m + k], p.n_rows[m], n_blocks);
    const uint n_chunks = n_blocks / 4;
    [[unroll]] for (uint tn = 0; tn < TN; tn++) {
        const uint col = min(col_first + tn * GM_VK_COLUMNS + lane() / 4, n - 1);
        const uint first = col / GM_VK_COLUMNS * n_chunks * 128;
        column_at[tn] = p.x + uint64_t(first + col % GM_VK_COLUMNS * 4 + lane() % 4) * 16;
    }
    [[unroll]] for (uint i = 0; i < NT * TN; i++)
        half_zero(acc[i]);

    const uint run = (n_chunks + WK - 1) / WK;
    const uint begin = wk() * run, end = min(begin + run, n_chunks);
    bool late = false;
    [[dont_unroll]] do {
        front_norms(n, late);
        [[unroll]] for (uint u = 0; u < U; u++)
            fetch(u, begin + u, end);
        late = front_waits(n);
    } while (late);
    [[unroll]] for (uint unit = 0; unit < AHEAD && STAGE == 0; unit++)
        fetch_columns(unit, begin, unit, end);
    if (STAGE == 1) {
        fetch_chunk(0, end, col_first, n);
        stage_chunk(0);
    }
    [[dont_unroll]] for (uint turn = 0; turn < run; turn += U) {
        [[unroll]] for (uint u = 0; u < U; u++) {
            const uint chunk = begin + turn + u;
            if (STAGE == 1) fetch_chunk(chunk + 1, end, col_first, n);
            use(u, chunk, end);
            if (STAGE == 1) stage_chunk(chunk + 1);
        }
    }
    [[dont_unroll]] for (uint tn = 0; tn < TN && col_first + tn * GM_VK_COLUMNS < n; tn++) {
        share_results(tn);
        put(m, row_first, col_first + tn * GM_VK_COLUMNS, n);
    }
}

void main()
{
    multiply(rows_in_step(p.head, p.flags));
}
