// The kernels for the host: what CUDA has and C++ has not, with a fiber for each thread of a block.
//
// Blocks run one after the other, the threads of a block in turn: each runs up to a barrier or an exchange between the
// lanes of its warp, and waits there for the others. Threads that have ended count as there, as they do on a GPU.
// A block of which no thread can go on is an error, not a hang. Include before a .cu file.
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <math.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Blocks take turns, so one copy is enough; it starts with what the last block left.
#define __shared__ static

// Under ThreadSanitizer every fiber is a thread of its own, and only barriers put their accesses in order: so it
// finds a barrier that is missing.
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define HIDDEN __attribute__((no_sanitize("thread")))
#else
#define HIDDEN
#define __tsan_create_fiber(flags) nullptr
#define __tsan_get_current_fiber() nullptr
#define __tsan_switch_to_fiber(fiber, flags)
#define __tsan_acquire(at)
#define __tsan_release(at)
#endif

namespace host {

struct Index {
    unsigned x;
};

// A thread of one block after another.
struct Fiber {
    // Where it goes on.
    jmp_buf place;
    Index index;
    bool started, done;
    // What ThreadSanitizer has of it.
    void *shadow;
};

// Threads that meet: all of a block, or of a warp.
struct Meeting {
    unsigned there, alive, times;
    // Something to exchange, of this meeting and the next.
    uint64_t slots[2][32];
};

constexpr unsigned MOST = 1024;
constexpr size_t STACK = 64 << 10;

static Fiber fibers[MOST];
static jmp_buf scheduler;
static void *scheduler_shadow;
static Fiber *now;
static Meeting block, warps[MOST / 32];
// Whether any thread has got on since the scheduler looked.
static bool moved;

// Leaves this thread for another one.
HIDDEN inline void leave() {
    if (_setjmp(now->place) == 0) {
        __tsan_switch_to_fiber(scheduler_shadow, 1);
        _longjmp(scheduler, 1);
    }
}

HIDDEN inline void open(Meeting &m) {
    if (m.alive > 0 && m.there == m.alive) {
        m.there = 0;
        m.times++;
    }
}

// Waits for the others. A barrier also lets each see what the others have written.
HIDDEN inline void meet(Meeting &m, bool barrier) {
    unsigned time = m.times;
    if (barrier)
        __tsan_release(&m.slots[time % 2]);
    m.there++;
    open(m);
    while (m.times == time)
        leave();
    moved = true;
    if (barrier)
        __tsan_acquire(&m.slots[time % 2]);
}

template <typename T> HIDDEN T exchange(T value, unsigned lane, unsigned from) {
    Meeting &m = warps[now->index.x / 32];
    uint64_t(&slots)[32] = m.slots[m.times % 2];
    memcpy(&slots[lane], &value, sizeof(T));
    meet(m, false);
    memcpy(&value, &slots[from % 32], sizeof(T));
    return value;
}

// A kernel: integers and pointers in one file of registers, floats in another, the rest on the stack, in order. So all
// kernels with up to 22 words more and two floats can be called as this one.
using Word = uint64_t;
typedef void (*Kernel)(Word, Word, Word, Word, Word, Word, double, double, Word, Word, Word, Word, Word, Word, Word, Word,
                       Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
static Kernel kernel;
static const Word *words;
static const double *floats;

HIDDEN inline void thread() {
    for (;;) {
        __tsan_acquire(&kernel);
        const Word *w = words;
        kernel(w[0], w[1], w[2], w[3], w[4], w[5], floats[0], floats[1], w[6], w[7], w[8], w[9], w[10], w[11], w[12],
               w[13], w[14], w[15], w[16], w[17], w[18], w[19], w[20], w[21], w[22], w[23], w[24], w[25], w[26], w[27]);
        __tsan_release(&kernel);
        now->done = moved = true;
        for (Meeting *m : {&block, &warps[now->index.x / 32]}) {
            m->alive--;
            open(*m);
        }
        leave();
    }
}

// Lets thread `now` go on, until it leaves.
HIDDEN inline void enter() {
    if (_setjmp(scheduler) != 0)
        return;
    bool started = now->started;
    if (!started)
        now->shadow = __tsan_create_fiber(0);
    now->started = true;
    __tsan_switch_to_fiber(now->shadow, 1);
    if (started)
        _longjmp(now->place, 1);
    static ucontext_t fresh;
    getcontext(&fresh);
    fresh.uc_stack.ss_sp = malloc(STACK);
    fresh.uc_stack.ss_size = STACK;
    makecontext(&fresh, thread, 0);
    setcontext(&fresh);
}

} // namespace host

static host::Index blockIdx, blockDim, gridDim;
#define threadIdx (host::now->index)

inline void __syncthreads() { host::meet(host::block, true); }
inline void __syncwarp(unsigned = ~0u) { host::meet(host::warps[threadIdx.x / 32], true); }
inline void __threadfence() {}

template <typename T> T __shfl_sync(unsigned, T value, int from) {
    return host::exchange(value, threadIdx.x % 32, from);
}
template <typename T> T __shfl_up_sync(unsigned, T value, unsigned by) {
    unsigned lane = threadIdx.x % 32;
    return host::exchange(value, lane, lane < by ? lane : lane - by);
}
template <typename T> T __shfl_down_sync(unsigned, T value, unsigned by) {
    unsigned lane = threadIdx.x % 32;
    return host::exchange(value, lane, lane + by > 31 ? lane : lane + by);
}
template <typename T> T __shfl_xor_sync(unsigned, T value, unsigned mask) {
    return host::exchange(value, threadIdx.x % 32, threadIdx.x % 32 ^ mask);
}
HIDDEN inline unsigned __ballot_sync(unsigned, int yes) {
    host::Meeting &m = host::warps[threadIdx.x / 32];
    uint64_t(&slots)[32] = m.slots[m.times % 2];
    slots[threadIdx.x % 32] = yes != 0;
    host::meet(m, false);
    unsigned all = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        all |= (unsigned)slots[lane] << lane;
    return all;
}

inline int __any_sync(unsigned lanes, int yes) { return __ballot_sync(lanes, yes) != 0; }
inline int __all_sync(unsigned lanes, int yes) { return __ballot_sync(lanes, !yes) == 0; }

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}
inline float __uint_as_float(unsigned x) {
    float out;
    memcpy(&out, &x, sizeof out);
    return out;
}
inline double __longlong_as_double(long long x) {
    double out;
    memcpy(&out, &x, sizeof out);
    return out;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(unsigned x) { return x == 0 ? 32 : __builtin_clz(x); }
inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    uint64_t bytes = (uint64_t)high << 32 | low;
    unsigned out = 0;
    for (unsigned i = 0; i < 4; i++)
        out |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
    return out;
}
template <typename T> T atomicAdd(T *at, T more) { return __atomic_fetch_add(at, more, __ATOMIC_RELAXED); }
template <typename T> T atomicExch(T *at, T value) { return __atomic_exchange_n(at, value, __ATOMIC_RELAXED); }

// Runs a kernel; 0 where all its threads came to an end.
extern "C" HIDDEN int host_launch(host::Kernel kernel, unsigned grid, unsigned threads, const uint64_t *words,
                           const double *floats) {
    using namespace host;
    if (threads == 0 || threads > MOST || threads % 32 != 0)
        return 1;
    scheduler_shadow = __tsan_get_current_fiber();
    host::kernel = kernel, host::words = words, host::floats = floats;
    blockDim.x = threads, gridDim.x = grid;
    __tsan_release(&host::kernel);
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++) {
        block = Meeting{0, threads, 0, {}};
        for (unsigned w = 0; w < threads / 32; w++)
            warps[w] = Meeting{0, 32, 0, {}};
        for (unsigned t = 0; t < threads; t++) {
            fibers[t].index.x = t;
            fibers[t].done = false;
        }
        do {
            moved = false;
            for (unsigned t = 0; t < threads; t++) {
                now = &fibers[t];
                if (!now->done)
                    enter();
            }
        } while (moved);
        // The threads that wait are lost: nothing runs here any more.
        if (block.alive > 0)
            return 2;
    }
    __tsan_acquire(&host::kernel);
    return 0;
}
