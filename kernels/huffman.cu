// Undo Huffman: each thread decodes a partition, each warp 32 adjacent ones.
//
// Reference: section 5.10. The host has checked that all sections lie inside the stream; they start at any byte. A
// table, made once, decodes the next 12 bits; longer codes are decoded bit by bit.
//
// Partitions of 1024 symbols: thread 5 begins at the cell that entry 5 of the stream names, decodes symbols 5120 to
// 6143 from as many bits as its nbit says, and keeps them in words; when each thread of the warp has a line of 16
// words, the warp writes the 32 lines.
//
// Checked: that the cells of a partition exist, that every code has a key, and that the symbols take exactly the bits
// of their partition.

#include "common.cuh"

#define LENGTHS 32u
#define LOOKUP 12u

// An unaligned little-endian word.
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

// The reverse code book: `first`, `base`, then the keys.
template <typename E> struct Book {
    const u32 *first, *base;
    const u8 *keys;
    u32 bklen;

    // The length of the code at the highest bits of `window`, if it is at most `most`, and its key; 0 if there is none.
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

// Fills the table: for every value of the next bits the key and, in the low 8 bits, the length of its code; 0 for a
// longer code, an invalid one, or a key too large for the entry. One block.
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

// Threads of a block, and words of output that a thread decodes before its warp writes them: two sectors of memory.
#define THREADS 128u
#define LINE 16u

// The next bits of a partition, from the highest down; zeros follow its last cell.
struct Bits {
    const u8 *cells;
    u32 left, have;
    u64 window;

    __device__ void fill() {
        if (have < 32) {
            window |= (u64)(left > 0 ? word(cells) : 0) << (32 - have);
            cells += 4;
            left -= left > 0;
            have += 32;
        }
    }

    __device__ void skip(u32 len) {
        window <<= len;
        have -= len;
    }
};

// Decodes `n` symbols of the partitions from `partition` on. Each thread decodes a partition, and the warp writes the
// decoded symbols, a line of each thread at a time.
template <typename E>
__device__ inline void symbols(const u8 *src, u64 book_at, u64 nbit_at, u64 entry_at, u64 cells_at, u64 ncell, u32 bklen,
                               u32 sublen, const u32 *made, u64 partition, E *dst, u64 n, u32 *fault) {
    constexpr u32 PER = 4 / sizeof(E), ROW = LINE * PER;
    __shared__ u32 table[1 << LOOKUP];
    __shared__ u32 rows[2 * LENGTHS];
    __shared__ Quad lines[THREADS / 32][32 * LINE / 4];
    for (u32 i = threadIdx.x; i < 1u << LOOKUP; i += THREADS)
        table[i] = made[i];
    for (u32 i = threadIdx.x; i < 2 * LENGTHS; i += THREADS)
        rows[i] = word(src + book_at + 4 * i);
    __syncthreads();
    u32 lane = threadIdx.x % 32, *line = (u32 *)lines[threadIdx.x / 32];
    u64 index = (u64)blockIdx.x * THREADS + threadIdx.x, first = index * sublen, warp = first - (u64)lane * sublen;
    // Uniform within a warp.
    if (warp >= n)
        return;
    u32 count = first >= n ? 0 : n - first < sublen ? (u32)(n - first) : sublen, nbit = 0, entry = 0;
    if (count > 0) {
        nbit = word(src + nbit_at + 4 * (partition + index));
        entry = word(src + entry_at + 4 * (partition + index));
    }
    u32 cells = nbit / 32 + (nbit % 32 != 0);
    // A thread that finds a fault stops decoding, but still writes with the others.
    bool bad = (u64)entry + cells > ncell || nbit > 32ull * sublen;
    Book<E> book = {rows, rows + LENGTHS, src + book_at + 8 * LENGTHS, bklen};
    Bits bits = {src + cells_at + 4ull * (bad ? 0 : entry), bad ? 0 : cells, 0, 0};
    u64 used = 0;
    bool aligned = (u64)sublen * sizeof(E) % 16 == 0;
    for (u32 from = 0; from < sublen; from += ROW) {
        u32 some = count > from ? count - from : 0;
        some = bad ? 0 : some < ROW ? some : ROW;
        u32 made_word = 0;
#pragma unroll 1
        for (u32 i = 0; i < some; i++) {
            bits.fill();
            u32 known = table[bits.window >> (64 - LOOKUP)], len = known & 0xFF;
            E key = (E)(known >> 8);
            if (len == 0) {
                len = book.code(bits.window, LENGTHS - 1, &key);
                if (len == 0) {
                    bad = true;
                    break;
                }
            }
            bits.skip(len);
            used += len;
            made_word |= (u32)key << 8 * sizeof(E) * (i % PER);
            if (i % PER == PER - 1 || i + 1 == some) {
                u32 at = LINE * lane + i / PER;
                line[4 * slot(at / 4) + at % 4] = made_word;
                made_word = 0;
            }
        }
        __syncwarp();
        if (aligned) {
            // As many lanes as a line has quads write the line of one thread.
            constexpr u32 QUADS = LINE / 4;
#pragma unroll
            for (u32 i = 0; i < QUADS; i++) {
                u32 of = 32 / QUADS * i + lane / QUADS, at = from + lane % QUADS * (4 * PER);
                u64 start = warp + (u64)of * sublen + at;
                Quad quad = lines[threadIdx.x / 32][slot(QUADS * of + lane % QUADS)];
                if (at + 4 * PER <= sublen && start + 4 * PER <= n) {
                    *(Quad *)(dst + start) = quad;
                } else {
#pragma unroll 1
                    for (u32 j = 0; j < 4 * PER && at + j < sublen && start + j < n; j++)
                        dst[start + j] = (E)(quad.w[j / PER] >> 8 * sizeof(E) * (j % PER));
                }
            }
        } else {
#pragma unroll 1
            for (u32 of = 0; of < 32; of++) {
#pragma unroll 1
                for (u32 j = lane; j < ROW; j += 32) {
                    u32 at = LINE * of + j / PER;
                    u64 start = warp + (u64)of * sublen + from + j;
                    if (from + j < sublen && start < n)
                        dst[start] = (E)(line[4 * slot(at / 4) + at % 4] >> 8 * sizeof(E) * (j % PER));
                }
            }
        }
        __syncwarp();
    }
    if (bad || used != nbit)
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
