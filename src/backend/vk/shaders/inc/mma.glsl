/* SPDX-License-Identifier: MIT */
// Tiles of 16 rows of weights times 16 columns of activations over DEPTH bytes of each, from shared
// memory into int32: by cooperative matrices where the device has them (DEPTH is theirs), else by
// dot products of four. A lane holds MMA_EACH of a tile's 256 results: mma_begin finds out which.
const uint MMA_EACH = 256 / SUBGROUP;

// Where a lane's results lie in their tile. Result i's row depends on those bits of i that ROW_BITS
// has, its column on those of COL_BITS: what is the same for several is read once.
layout(constant_id = ID_ROW_BITS) const uint ROW_BITS = 31;
layout(constant_id = ID_COL_BITS) const uint COL_BITS = 31;
uint mma_rows[MMA_EACH], mma_cols[MMA_EACH];
#define mma_row(i) mma_rows[(i) & ROW_BITS]
#define mma_col(i) mma_cols[(i) & COL_BITS]

#ifdef NEEDS_COOPMAT_I8
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require

#define MmaA coopmat<int8_t, gl_ScopeSubgroup, 16, DEPTH, gl_MatrixUseA>
#define MmaB coopmat<int8_t, gl_ScopeSubgroup, DEPTH, 16, gl_MatrixUseB>
#define MmaC coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

// All lanes of the workgroup must be here; it uses what is staged.
void mma_begin()
{
    for (uint i = gl_LocalInvocationIndex; i < 64; i += gl_WorkGroupSize.x)
        staged[i] = uvec4(0, 1, 2, 3) + 4 * i;
    barrier();
    MmaC at;
    coopMatLoad(at, staged, 0, 4, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint i = 0; i < MMA_EACH; i++) {
        mma_rows[i] = uint(at[i]) >> 4;
        mma_cols[i] = uint(at[i]) & 15;
    }
    barrier();
}

#define mma_load_a(to, from, at, stride) \
    coopMatLoad(to, from, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define mma_load_b(to, from, at, stride) \
    coopMatLoad(to, from, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define mma_add(a, b, c) c = coopMatMulAdd(a, b, c)
#define mma_fill(c, value) c = MmaC(value)
#else
#define MmaA uint // where the tile begins
#define MmaB uint
#define MmaC int[MMA_EACH]

void mma_begin()
{
    [[unroll]] for (uint i = 0; i < MMA_EACH; i++) {
        const uint at = i * SUBGROUP + gl_SubgroupInvocationID;
        mma_rows[i] = at >> 4;
        mma_cols[i] = at & 15;
    }
}

#define mma_load_a(to, from, at, stride) to = at
#define mma_load_b(to, from, at, stride) to = at
#define mma_fill(c, value) \
    { [[unroll]] for (uint mma_i = 0; mma_i < MMA_EACH; mma_i++) c[mma_i] = value; }
#define mma_add(a, b, c)                                                           \
    {                                                                              \
        [[unroll]] for (uint mma_i = 0; mma_i < MMA_EACH; mma_i++) {               \
            const uint mma_a = a + mma_row(mma_i) * A_PITCH;                       \
            const uint mma_b = b + mma_col(mma_i) * B_PITCH;                       \
            [[unroll]] for (uint mma_k = 0; mma_k < DEPTH / 16; mma_k++)           \
                c[mma_i] += dot16(staged[mma_a + mma_k], staged[mma_b + mma_k]);   \
        }                                                                          \
    }
#endif
