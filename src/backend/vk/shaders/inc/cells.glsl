/* SPDX-License-Identifier: MIT */
// Cells of the KV cache. A page holds, for each layer of its class, K and V, for each KV head, 32
// cells: rows of head_dim values padded to whole units. A unit is eight values: 32 bytes as f32, 16
// as f16; as q8_0 four units of 8 bytes are a block, whose float32 scales lie behind the 32 rows.
// KV is the type's number in GGUF files. A workgroup may read what another lane of it has just
// stored, hence coherent memory.

layout(constant_id = ID_KV) const uint KV = 1;
#define KV_F32 0
#define KV_F16 1

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

// Eight values of a cell: its head's 32 rows begin at base.
void cell_load(uint64_t base, uint cell, uint unit, uint units, out float x[8])
{
    const uint i = cell * units + unit;
    if (KV == KV_F32) {
        const vec4 a = CF4(base).v[2 * i], b = CF4(base).v[2 * i + 1];
        [[unroll]] for (int j = 0; j < 4; j++) {
            x[j] = a[j];
            x[j + 4] = b[j];
        }
    } else if (KV == KV_F16) {
        const uvec4 v = CU4(base).v[i];
        [[unroll]] for (int j = 0; j < 4; j++) {
            const vec2 h = unpackHalf2x16(v[j]);
            x[2 * j] = h.x;
            x[2 * j + 1] = h.y;
        }
    } else {
        const uvec2 v = CU2(base).v[i];
        const float scale = CF1(base + units * GM_VK_PAGE * 8).v[i / 4];
        [[unroll]] for (int j = 0; j < 8; j++)
            x[j] = float(bitfieldExtract(int(v[j / 4]), j % 4 * 8, 8)) * scale;
    }
}
