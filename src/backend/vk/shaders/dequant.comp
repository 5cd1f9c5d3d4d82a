#version 460
/* SPDX-License-Identifier: MIT */
/* Rows of Q4_0 blocks to float32, one lane a value. */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_scalar_block_layout : require

layout(constant_id = ID_LANES) const uint LANES = 64;
layout(local_size_x_id = ID_LANES) in;

struct block {
    float16_t d;
    uint8_t q[16];
};
layout(buffer_reference, scalar, buffer_reference_align = 2) readonly buffer blocks { block b[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) writeonly buffer floats { float x[]; };
layout(push_constant, scalar) uniform push {
    blocks src;
    floats dst;
    uint n;
};

void main()
{
    const uint i = gl_GlobalInvocationID.x;
    if (i >= n) return;
    const uint at = i % 32;
    const uint pair = uint(src.b[i / 32].q[at % 16]);
    const int q = int(at < 16 ? pair & 15u : pair >> 4) - 8;
    dst.x[i] = float(src.b[i / 32].d) * float(q);
}
