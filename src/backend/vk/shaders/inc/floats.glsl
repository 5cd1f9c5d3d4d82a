/* SPDX-License-Identifier: MIT */
// Plain float weights from the device's layout: 128 columns are a chunk, in which the eight values
// of running sum s (columns s, s + 16, ..) lie together. Rows are padded to whole chunks.

#define F16  1
#define BF16 30

#if TYPE == F16 || TYPE == BF16
#define VALUES_A_WORD 2
#else
#define VALUES_A_WORD 1
#endif

// The eight values number i.. (a multiple of 8) of the weight.
void floats_load(uint64_t base, uint i, out float w[8])
{
#if TYPE == F16
    const uvec4 v = U4(base).v[i / 8];
    [[unroll]] for (int j = 0; j < 4; j++) {
        const vec2 h = unpackHalf2x16(v[j]);
        w[2 * j] = h.x;
        w[2 * j + 1] = h.y;
    }
#elif TYPE == BF16
    const uvec4 v = U4(base).v[i / 8];
    [[unroll]] for (int j = 0; j < 4; j++) {
        w[2 * j] = uintBitsToFloat(v[j] << 16);
        w[2 * j + 1] = uintBitsToFloat(v[j] & 0xffff0000u);
    }
#else
    const uvec4 a = U4(base).v[i / 4], b = U4(base).v[i / 4 + 1];
    [[unroll]] for (int j = 0; j < 4; j++) {
        w[j] = uintBitsToFloat(a[j]);
        w[j + 4] = uintBitsToFloat(b[j]);
    }
#endif
}

uint floats_chunks(uint n_cols)
{
    return (n_cols + 127) / 128;
}
