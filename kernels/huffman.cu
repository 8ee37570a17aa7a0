// Huffman undone: a thread a partition.
//
// Reference: section 5.10. The host has seen that all sections lie inside the stream; they start at any byte. What 12 bits
// come to is looked up in a table, which is made once; longer codes are taken bit by bit.
//
// Checked: that the cells of a partition are there, that every code has a key, and that the symbols take exactly the bits
// of their partition.

#include "common.cuh"

#define LENGTHS 32u
#define LOOKUP 12u

// A little-endian word from any place.
__device__ inline u32 word(const u8 *at) {
    u32 skip = (u32)((u64)at % 4);
    const u32 *words = (const u32 *)(at - skip);
    return skip == 0 ? words[0] : (u32)(((u64)words[1] << 32 | words[0]) >> 8 * skip);
}

template <typename E> __device__ inline E element(const u8 *at) {
    E value = 0;
    for (u32 i = 0; i < sizeof(E); i++)
        value |= (E)((E)at[i] << 8 * i);
    return value;
}

// The reverse code book: `first`, `base`, and behind them the keys.
template <typename E> struct Book {
    const u32 *first, *base;
    const u8 *keys;
    u32 bklen;

    // The length of the code that the highest bits of `window` are, if it is at most `most`, and its key; 0 where there is
    // none.
    __device__ u32 code(u64 window, u32 most, E *key) const {
        for (u32 len = 1; len <= most; len++) {
            u32 value = (u32)(window >> (64 - len));
            if (value >= first[len]) {
                u64 place = (u64)base[len] + (value - first[len]);
                if (place >= bklen)
                    return 0;
                *key = element<E>(keys + place * sizeof(E));
                return len;
            }
        }
        return 0;
    }
};

// Makes the table: for every value of the next bits the key and, in the low 8 bits, the length of its code; 0 for a
// code that is longer, or none, or a key that does not fit beside it. One block.
template <typename E> __device__ inline void fill_table(const u8 *tables, u32 bklen, u32 *table) {
    __shared__ u32 rows[2 * LENGTHS];
    for (u32 i = threadIdx.x; i < 2 * LENGTHS; i += blockDim.x)
        rows[i] = word(tables + 4 * i);
    __syncthreads();
    Book<E> book = {rows, rows + LENGTHS, tables + 8 * LENGTHS, bklen};
    for (u32 bits = threadIdx.x; bits < 1u << LOOKUP; bits += blockDim.x) {
        E key = 0;
        u32 len = book.code((u64)bits << (64 - LOOKUP), LOOKUP, &key);
        table[bits] = len == 0 || (u64)key >= 1 << 24 ? 0 : (u32)key << 8 | len;
    }
}

// Symbols that are stored at once: the last one in the highest bits.
struct alignas(16) Row {
    u64 low, high;
};

// Decodes `n` symbols, which are those of the partitions from `partition` on.
template <typename E>
__device__ inline void symbols(const u8 *src, u64 book_at, u64 nbit_at, u64 entry_at, u64 cells_at, u64 ncell, u32 bklen,
                               u32 sublen, const u32 *made, u64 partition, E *dst, u64 n, u32 *fault) {
    __shared__ u32 table[1 << LOOKUP];
    __shared__ u32 rows[2 * LENGTHS];
    for (u32 i = threadIdx.x; i < 1u << LOOKUP; i += blockDim.x)
        table[i] = made[i];
    for (u32 i = threadIdx.x; i < 2 * LENGTHS; i += blockDim.x)
        rows[i] = word(src + book_at + 4 * i);
    __syncthreads();
    u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 first = index * sublen;
    if (first >= n)
        return;
    u32 count = n - first < sublen ? (u32)(n - first) : sublen;
    u32 nbit = word(src + nbit_at + 4 * (partition + index)), entry = word(src + entry_at + 4 * (partition + index));
    u32 own = nbit / 32 + (nbit % 32 != 0);
    if ((u64)entry + own > ncell || nbit > 32ull * sublen)
        return raise(fault);
    Book<E> book = {rows, rows + LENGTHS, src + book_at + 8 * LENGTHS, bklen};
    const u8 *cells = src + cells_at + 4ull * entry;

    constexpr u32 ROW = 16 / sizeof(E), BITS = 8 * sizeof(E);
    bool aligned = (u64)sublen * sizeof(E) % 16 == 0;
    E *out = dst + first;
    Row row = {0, 0};
    // The bits to come, from the highest down, and how many are there; behind the last cell come zeros.
    u64 window = 0, used = 0;
    u32 have = 0, cell = 0;
    for (u32 i = 0; i < count; i++) {
        if (have < 32) {
            window |= (u64)(cell < own ? word(cells + 4 * cell) : 0) << (32 - have);
            cell += cell < own;
            have += 32;
        }
        u32 known = table[window >> (64 - LOOKUP)], len = known & 0xFF;
        E key = (E)(known >> 8);
        if (len == 0) {
            len = book.code(window, LENGTHS - 1, &key);
            if (len == 0)
                return raise(fault);
        }
        window <<= len;
        have -= len;
        used += len;
        if (!aligned) {
            out[i] = key;
            continue;
        }
        row.low = row.low >> BITS | row.high << (64 - BITS);
        row.high = row.high >> BITS | (u64)key << (64 - BITS);
        if (i % ROW == ROW - 1)
            *(Row *)(out + (i - i % ROW)) = row;
    }
    for (u32 j = aligned ? ROW - count % ROW : ROW; j < ROW; j++)
        out[count - (ROW - j)] = (E)((j * BITS < 64 ? row.low : row.high) >> j * BITS % 64);
    if (used != nbit)
        raise(fault);
}

// An alphabet of one symbol: its code has no bits.
template <typename E> __device__ inline void only(const u8 *key, E *dst, u64 n) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n)
        dst[at] = element<E>(key);
}

#define SYMBOLS(E, NAME)                                                                                              \
    KERNEL huffman_table_##NAME(const u8 *src, u64 book_at, u32 bklen, u32 *table, u32 *fault) {                      \
        fill_table<E>(src + book_at, bklen, table);                                                                   \
    }                                                                                                                 \
    KERNEL huffman_##NAME(const u8 *src, u64 book_at, u64 nbit_at, u64 entry_at, u64 cells_at, u64 ncell, u32 bklen,  \
                          u32 sublen, const u32 *table, u64 partition, E *dst, u64 n, u32 *fault) {                   \
        symbols(src, book_at, nbit_at, entry_at, cells_at, ncell, bklen, sublen, table, partition, dst, n, fault);    \
    }                                                                                                                 \
    KERNEL huffman_only_##NAME(const u8 *src, u64 key_at, E *dst, u64 n, u32 *fault) { only(src + key_at, dst, n); }

SYMBOLS(u8, 1)
SYMBOLS(u16, 2)
SYMBOLS(u32, 4)
