#version 460
/* SPDX-License-Identifier: MIT */
/* One 16 by 16 tile of a product of float16 matrices, summed in float32. */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require

layout(constant_id = ID_SUBGROUP) const uint SUBGROUP = 32;
layout(local_size_x_id = ID_SUBGROUP) in;

layout(buffer_reference, scalar, buffer_reference_align = 16)
readonly buffer halves { float16_t x[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16)
writeonly buffer floats { float x[]; };
layout(push_constant, scalar) uniform push {
    halves a; /* [16, k] */
    halves b; /* [16, k] */
    floats dst; /* [16, 16] */
    uint k;
};

void main()
{
    coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sum =
        coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
    for (uint i = 0; i < k; i += 16) {
        coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> u;
        coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> v;
        coopMatLoad(u, a.x, i, k, gl_CooperativeMatrixLayoutRowMajor);
        coopMatLoad(v, b.x, i, k, gl_CooperativeMatrixLayoutColumnMajor);
        sum = coopMatMulAdd(u, v, sum);
    }
    coopMatStore(sum, dst.x, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
}
