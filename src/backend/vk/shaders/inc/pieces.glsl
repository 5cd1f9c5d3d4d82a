/* SPDX-License-Identifier: MIT */
// What a block's one or two pieces are multiplied with, as floats; all of them are exact.
#define PIECES (TWO_SCALES ? 2 : 1)

vec2 block_scales(Raw r)
{
    return block_d(r).x * vec2(block_sc(r));
}

vec2 block_mins(Raw r)
{
    return block_d(r).y * vec2(block_min(r));
}

// What a piece's minimum is multiplied with; of_x is the sum of the activation's codes.
float piece_y(float dx, float of_x)
{
    precise const float y = dx * of_x;
    return y;
}

// The law of a product on a device: pieces of a block, in order, are added to one of the row's
// running sums, each with one rounding where it is added. s is the dot product of codes less their
// zero, y piece_y.
float add_piece(float sum, float d, float m, float dx, float s, float y)
{
    precise const float scale = d * dx;
    sum = fma(scale, s, sum);
    if (HAS_MIN) sum = fma(-m, y, sum);
    return sum;
}
