/* SPDX-License-Identifier: MIT */
// Cells of the KV cache. A page holds, for each layer of its class, K and V, for each KV head, 32
// cells: rows of head_dim values padded to whole units. A unit is eight values: 32 bytes as f32, 16
// as f16; as q8_0 four units of 8 bytes are a block, whose float32 scales lie behind the 32 rows.
// KV is the type's number in GGUF files. Cells are read as coherent memory, so that a compiler
// leaves the loads where they are asked for, long before their use.

layout(constant_id = ID_KV) const uint KV = 1;
#define KV_F32 0
#define KV_F16 1
const bool HAS_SCALES = KV != KV_F32 && KV != KV_F16;

uint cell_units(uint head_dim)
{
    return KV == KV_F32 || KV == KV_F16 ? (head_dim + 7) / 8 : (head_dim + 31) / 32 * 4;
}

// Bytes of the 32 cells of one head.
uint head_size(uint head_dim)
{
    const uint units = cell_units(head_dim) * GM_VK_PAGE;
    return KV == KV_F32 ? units * 32 : KV == KV_F16 ? units * 16 : units * 8 + units;
}

// Where a layer's cells are found.
struct Cells {
    uint64_t tables;
    uint table_len, layer_off, class_of, n_kv_head;
};

// The 32 cells of a KV head that position pos belongs to; which is 0 for K, 1 for V.
uint64_t cells_of(Cells c, uint slot, uint pos, uint which, uint kv_head, uint head_dim)
{
    const uint64_t page =
        A1(c.tables).v[(slot * 2 + c.class_of) * c.table_len + pos / GM_VK_PAGE];
    return page + uint64_t(c.layer_off) * 16 +
           (which * c.n_kv_head + kv_head) * head_size(head_dim);
}

// Eight values of a cell, as they were read.
struct CellRaw {
    uvec4 a, b;
};

// Asks for them: the cell's head has its 32 rows from base on.
CellRaw cell_fetch(uint64_t base, uint cell, uint unit, uint units)
{
    const uint i = cell * units + unit;
    CellRaw raw = CellRaw(uvec4(0), uvec4(0));
    if (KV == KV_F32) {
        raw.a = CU4(base).v[2 * i];
        raw.b = CU4(base).v[2 * i + 1];
    } else if (KV == KV_F16) {
        raw.a = CU4(base).v[i];
    } else {
        raw.a.xy = CU2(base).v[i];
        raw.a.z = CU1(base + units * GM_VK_PAGE * 8).v[i / 4];
    }
    return raw;
}

// Byte j of a word of signed ones, by a subtraction: a device adds many times faster than it
// converts.
float byte_value(uint word, uint j)
{
    const uint shifted = bitfieldExtract(word ^ 0x80808080u, int(j) * 8, 8);
    precise const float x = uintBitsToFloat(0x4b000000u | shifted) - 8388736.0; // 2^23 + 128
    return x;
}

void cell_values(CellRaw raw, out float x[8])
{
    [[unroll]] for (int j = 0; j < 4; j++) {
        if (KV == KV_F32) {
            x[j] = uintBitsToFloat(raw.a[j]);
            x[j + 4] = uintBitsToFloat(raw.b[j]);
        } else if (KV == KV_F16) {
            const vec2 h = unpackHalf2x16(raw.a[j]);
            x[2 * j] = h.x;
            x[2 * j + 1] = h.y;
        } else {
            const float scale = uintBitsToFloat(raw.a.z);
            x[j] = byte_value(raw.a.x, j) * scale;
            x[j + 4] = byte_value(raw.a.y, j) * scale;
        }
    }
}
