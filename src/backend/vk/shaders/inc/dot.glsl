/* SPDX-License-Identifier: MIT */
/* The dot product of four signed bytes with four signed bytes, as the one instruction that the
 * int_dot8 feature names. Written as SPIR-V because compilers know this form for longer than
 * GL_EXT_integer_dot_product: 4450 is OpSDot, 6019 and 6018 are DotProduct and
 * DotProductInput4x8BitPacked, format 0 is PackedVectorFormat4x8Bit. */
#extension GL_EXT_spirv_intrinsics : require

spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018],
                  id = 4450)
int dot4_packed(int a, int b, spirv_literal int format);

int dot4(int a, int b)
{
    return dot4_packed(a, b, 0);
}

/* Signed bytes with unsigned ones: OpSUDot. */
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018],
                  id = 4452)
int dot4_packed_mixed(int a, uint b, spirv_literal int format);

int dot4_mixed(int a, uint b)
{
    return dot4_packed_mixed(a, b, 0);
}
