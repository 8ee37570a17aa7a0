// A driver for a GPU that is the host: the functions of libcuda that fzmfs calls, so that all of its CUDA code runs
// where there is no GPU. The kernels are those of kernels/, compiled for the host with host.h into a library each
// beside this one; what arguments they have is what their PTX says.
//
// Streams do everything as late as they may: when somebody waits for an event, what the stream was given before. So a
// buffer of the host that is read or written again too early shows, and so does memory given back too early.
//
// FAKE_CUDA=WORD,... makes it fail: devices=N, version=N, memory=BYTES, capability=N, pools=0, init=CODE, cubins=0,
// which takes no machine code, as a driver older than its format, and fail=FUNCTION@N: the N-th call of a function
// fails with error 700, an illegal address, as do all calls after it. With adjacent=1 allocations adjoin, as those of a
// real pool may, and have no guard bytes.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <vector>

typedef unsigned long long Pointer;
enum Result { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101, BAD_IMAGE = 209, BAD_PTX = 218, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL = 700 };

// PTX that was loaded, with its library.
struct Module;
struct Kernel {
    void *function;
    // `u64`, `u32`, `f32` or `f64` of each argument.
    std::vector<std::string> arguments;
    Module *module;
};
struct Module {
    void *library;
    std::string ptx;
    // The library runs one kernel at a time, however often it was loaded.
    std::mutex &mutex;
    std::map<std::string, Kernel> kernels;
};

static std::string word(const char *name, const char *otherwise) {
    const char *all = getenv("FAKE_CUDA");
    std::string words = std::string(",") + (all ? all : ""), key = std::string(",") + name + "=";
    size_t at = words.find(key);
    if (at == std::string::npos)
        return otherwise;
    at += key.size();
    return words.substr(at, words.find(',', at) - at);
}
static long number(const char *name, const char *otherwise) { return atol(word(name, otherwise).c_str()); }

static std::mutex mutex;
static bool poisoned;
static std::map<std::string, long> calls;
// Allocations by address, with their lengths. Before and behind it lies an edge that nobody may write to.
static const size_t EDGE = 512;
// Address space for allocations that adjoin; none is used twice.
static const size_t ARENA = (size_t)1 << 40;
static std::map<Pointer, size_t> allocated;
static size_t used;

// Counts a call; the error with which it fails, if it does.
static Result called(const char *function) {
    std::lock_guard<std::mutex> guard(mutex);
    std::string fail = word("fail", "");
    size_t at = fail.find('@');
    if (at != std::string::npos && fail.substr(0, at) == function && ++calls[function] >= atol(fail.c_str() + at + 1))
        poisoned = true;
    return poisoned ? ILLEGAL : OK;
}
#define CALLED                                                                                                        \
    if (Result error = called(__func__))                                                                              \
    return error

static bool inside(Pointer at, size_t n) {
    std::lock_guard<std::mutex> guard(mutex);
    auto next = allocated.upper_bound(at);
    if (next == allocated.begin())
        return false;
    auto [start, len] = *--next;
    return at - start <= len && n <= len - (at - start);
}
static Result give(Pointer *pointer, size_t n) {
    std::lock_guard<std::mutex> guard(mutex);
    if (n == 0)
        return INVALID;
    if (n > (size_t)number("memory", "8000000000") - std::min(used, (size_t)number("memory", "8000000000")))
        return NO_MEMORY;
    const size_t whole = (n + EDGE - 1) / EDGE * EDGE;
    if (number("adjacent", "0")) {
        static char *next = (char *)mmap(nullptr, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        *pointer = (Pointer)next;
        next += whole;
    } else {
        char *memory = (char *)aligned_alloc(EDGE, EDGE + whole + EDGE);
        memset(memory, 0xC3, EDGE);
        memset(memory + EDGE + n, 0xC3, EDGE);
        *pointer = (Pointer)(memory + EDGE);
    }
    memset((void *)*pointer, 0xA5, n);
    allocated[*pointer] = n;
    used += n;
    return OK;
}
static Result take(Pointer pointer) {
    std::lock_guard<std::mutex> guard(mutex);
    auto found = allocated.find(pointer);
    if (found == allocated.end())
        return INVALID;
    size_t n = found->second;
    used -= n;
    allocated.erase(found);
    if (number("adjacent", "0"))
        return OK;
    char *memory = (char *)pointer - EDGE;
    for (size_t i = 0; i < EDGE; i++) {
        if ((unsigned char)memory[i] != 0xC3 || (unsigned char)memory[EDGE + n + i] != 0xC3) {
            fprintf(stderr, "a kernel wrote outside of a buffer of %zu bytes\n", n);
            abort();
        }
    }
    free(memory);
    return OK;
}

// Work in order, done up to where somebody waits for.
struct Stream {
    std::mutex mutex;
    std::deque<std::function<Result()>> work;
    uint64_t given = 0, done = 0;

    Result give(std::function<Result()> job) {
        std::lock_guard<std::mutex> guard(mutex);
        work.push_back(std::move(job));
        given++;
        return OK;
    }

    Result run(uint64_t until) {
        std::lock_guard<std::mutex> guard(mutex);
        for (; done < until && !work.empty(); done++, work.pop_front()) {
            if (work.front()() != OK) {
                std::lock_guard<std::mutex> guard(::mutex);
                poisoned = true;
            }
        }
        std::lock_guard<std::mutex> all(::mutex);
        return poisoned ? ILLEGAL : OK;
    }
};
struct Event {
    Stream *stream = nullptr;
    uint64_t place = 0;
    // When it came to be, in milliseconds.
    std::shared_ptr<double> time = std::make_shared<double>(-1);
};
// Streams stay: events may be waited for that are older than the end of theirs.
static std::deque<Stream> &streams() {
    static std::deque<Stream> streams;
    return streams;
}

// What a handle of a stream means: 0 is the stream that is always there.
static Stream *own(Stream *stream) {
    static Stream standard;
    return stream ? stream : &standard;
}
// Bytes copied to the device, and back.
static std::atomic<uint64_t> copied[2];

extern "C" {

uint64_t fake_copied(int back) { return copied[back]; }
Result cuInit(unsigned) { return (Result)number("init", "0"); }
Result cuDriverGetVersion(int *version) {
    *version = (int)number("version", "12020");
    return OK;
}
Result cuDeviceGetCount(int *count) {
    CALLED;
    *count = (int)number("devices", "1");
    return OK;
}
Result cuDeviceGet(int *device, int ordinal) {
    CALLED;
    *device = ordinal;
    return ordinal < number("devices", "1") ? OK : BAD_DEVICE;
}
Result cuDeviceGetName(char *name, int len, int) {
    CALLED;
    snprintf(name, (size_t)len, "Host");
    return OK;
}
Result cuDeviceGetAttribute(int *value, int attribute, int) {
    CALLED;
    // Compute capability, and pools of memory.
    *value = attribute == 75 ? (int)number("capability", "9") : attribute == 76 ? (int)number("capability", "9") : attribute == 115 ? (int)number("pools", "1") : 0;
    return OK;
}
Result cuDeviceGetDefaultMemPool(void **pool, int) {
    CALLED;
    *pool = &used;
    return OK;
}
static uint64_t threshold;
uint64_t fake_kept_memory() { return threshold; }
Result cuMemPoolGetAttribute(void *, int attribute, void *value) {
    CALLED;
    memcpy(value, &threshold, sizeof threshold);
    return attribute == 4 ? OK : INVALID;
}
Result cuMemPoolSetAttribute(void *, int attribute, void *value) {
    CALLED;
    memcpy(&threshold, value, sizeof threshold);
    return attribute == 4 ? OK : INVALID;
}
Result cuDevicePrimaryCtxRetain(void **context, int) {
    CALLED;
    *context = &poisoned;
    return OK;
}
Result cuDevicePrimaryCtxRelease_v2(int) { return OK; }
static thread_local void *current;
Result cuCtxGetCurrent(void **context) {
    CALLED;
    *context = current;
    return OK;
}
Result cuCtxSetCurrent(void *context) {
    CALLED;
    current = context;
    return OK;
}
Result cuGetErrorString(Result code, const char **text) {
    static const std::map<Result, const char *> words = {{NO_MEMORY, "out of memory"},
                                                         {NO_DEVICE, "no CUDA-capable device is detected"},
                                                         {NOT_FOUND, "named symbol not found"},
                                                         {ILLEGAL, "an illegal memory access was encountered"}};
    auto found = words.find(code);
    if (found == words.end())
        return INVALID;
    *text = found->second;
    return OK;
}
Result cuMemGetInfo_v2(size_t *free, size_t *total) {
    CALLED;
    *total = (size_t)number("memory", "8000000000");
    *free = *total - std::min(*total, used);
    return OK;
}
Result cuMemAlloc_v2(Pointer *pointer, size_t n) { CALLED; return give(pointer, n); }
Result cuCtxSynchronize() {
    CALLED;
    std::vector<Stream *> all{own(nullptr)};
    {
        std::lock_guard<std::mutex> guard(mutex);
        for (Stream &stream : streams())
            all.push_back(&stream);
    }
    Result done = OK;
    for (Stream *stream : all)
        done = std::max(done, stream->run(UINT64_MAX));
    return done;
}
Result cuMemFree_v2(Pointer pointer) {
    CALLED;
    cuCtxSynchronize();
    return take(pointer);
}
Result cuMemAllocAsync(Pointer *pointer, size_t n, void *) { CALLED; return give(pointer, n); }
Result cuMemFreeAsync(Pointer pointer, Stream *stream) {
    CALLED;
    return own(stream)->give([=] { return take(pointer); });
}
Result cuMemHostAlloc(void **memory, size_t n, unsigned) {
    CALLED;
    *memory = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
    return *memory ? OK : NO_MEMORY;
}
Result cuMemFreeHost(void *memory) {
    free(memory);
    return OK;
}
Result cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t n, Stream *stream) {
    CALLED;
    copied[0] += n;
    return stream->give([=] { return inside(to, n) ? (memcpy((void *)to, from, n), OK) : INVALID; });
}
Result cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t n, Stream *stream) {
    CALLED;
    copied[1] += n;
    return own(stream)->give([=] { return inside(from, n) ? (memcpy(to, (const void *)from, n), OK) : INVALID; });
}
Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t n, Stream *stream) {
    CALLED;
    return stream->give([=] {
        return inside(to, n) && inside(from, n) ? (memcpy((void *)to, (const void *)from, n), OK) : INVALID;
    });
}
Result cuMemsetD8Async(Pointer to, unsigned char value, size_t n, Stream *stream) {
    CALLED;
    return stream->give([=] { return inside(to, n) ? (memset((void *)to, value, n), OK) : INVALID; });
}
Result cuStreamCreate(Stream **stream, unsigned) {
    CALLED;
    std::lock_guard<std::mutex> guard(mutex);
    *stream = &streams().emplace_back();
    return OK;
}
Result cuStreamDestroy_v2(Stream *stream) { return stream->run(UINT64_MAX); }
Result cuEventCreate(Event **event, unsigned) {
    CALLED;
    *event = new Event;
    return OK;
}
Result cuEventDestroy_v2(Event *event) {
    delete event;
    return OK;
}
Result cuEventRecord(Event *event, Stream *stream) {
    CALLED;
    stream = own(stream);
    auto time = std::make_shared<double>(-1);
    stream->give([=] {
        using namespace std::chrono;
        *time = duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
        return OK;
    });
    std::lock_guard<std::mutex> guard(stream->mutex);
    *event = {stream, stream->given, time};
    return OK;
}
Result cuEventElapsedTime(float *milliseconds, Event *from, Event *to) {
    CALLED;
    if (*from->time < 0 || *to->time < 0)
        return NOT_READY;
    *milliseconds = (float)(*to->time - *from->time);
    return OK;
}
Result cuEventSynchronize(Event *event) {
    CALLED;
    return event->stream ? event->stream->run(event->place) : OK;
}

// The text of a file.
static std::string text(const std::string &path) {
    std::ifstream file(path);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
}

// The PTX that a cubin was made of, of those in `folder`: the cubin names their kernels. Empty where none is.
static std::string ptx_of(const char *image, const std::string &folder) {
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    std::string all(image, head.e_shoff + (size_t)head.e_shentsize * head.e_shnum), found;
    // Machine code for a GPU of another kind. From its eighth ABI on it is the second byte of the flags that says
    // which.
    unsigned capability = head.e_ident[EI_ABIVERSION] < 8 ? head.e_flags & 0xFF : head.e_flags >> 8 & 0xFF;
    if (capability / 10 != (unsigned)number("capability", "9"))
        return found;
    DIR *dir = opendir(folder.c_str());
    while (dirent *entry = dir ? readdir(dir) : nullptr) {
        std::string name = entry->d_name;
        if (name.size() < 4 || name.substr(name.size() - 4) != ".ptx")
            continue;
        std::string ptx = text(folder + name);
        size_t at = ptx.find(".entry ") + 7;
        std::string kernel = ptx.substr(at, ptx.find('(', at) - at);
        if (all.find(".text." + kernel + '\0') != std::string::npos)
            found = ptx;
    }
    if (dir)
        closedir(dir);
    return found;
}

// The library is the one that the PTX's first line names: `// CHECKSUM of NAME.cu, ...`.
Result cuModuleLoadData(void **module, const void *image) {
    CALLED;
    Dl_info here;
    dladdr((void *)cuModuleLoadData, &here);
    std::string folder = here.dli_fname;
    folder = folder.substr(0, folder.rfind('/') + 1);
    bool machine = memcmp(image, ELFMAG, SELFMAG) == 0;
    if (machine && number("cubins", "1") == 0)
        return BAD_IMAGE;
    std::string ptx = machine ? ptx_of((const char *)image, folder) : (const char *)image;
    size_t from = ptx.find(" of "), to = ptx.find(".cu,");
    if (machine && ptx.empty())
        return BAD_IMAGE;
    if (from == std::string::npos || to == std::string::npos || ptx.find("\n.version 8.0") == std::string::npos)
        return BAD_PTX;
    std::string path = folder + ptx.substr(from + 4, to - from - 4) + ".so";
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return NOT_FOUND;
    static std::map<void *, std::mutex> running;
    std::lock_guard<std::mutex> guard(mutex);
    *module = new Module{library, ptx, running[library], {}};
    return OK;
}
Result cuModuleUnload(void *) { return OK; }
Result cuModuleGetFunction(void **function, void *of, const char *name) {
    CALLED;
    Module &module = *(Module *)of;
    std::lock_guard<std::mutex> guard(mutex);
    void *found = dlsym(module.library, name);
    size_t at = module.ptx.find(std::string(".entry ") + name + "(");
    if (!found || at == std::string::npos)
        return NOT_FOUND;
    Kernel kernel{found, {}, &module};
    size_t end = module.ptx.find(')', at);
    while ((at = module.ptx.find(".param .", at)) < end)
        kernel.arguments.push_back(module.ptx.substr(at += 8, 3));
    *function = &(module.kernels[name] = kernel);
    return OK;
}
Result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, Stream *stream, void **args, void **extra) {
    CALLED;
    Kernel &kernel = *(Kernel *)function;
    if (gx == 0 || gx > 0x7FFFFFFF || bx == 0 || bx > 1024 || gy != 1 || gz != 1 || by != 1 || bz != 1 || shared || extra)
        return INVALID;
    std::vector<uint64_t> words;
    std::vector<double> floats;
    for (size_t i = 0; i < kernel.arguments.size(); i++) {
        const std::string &type = kernel.arguments[i];
        uint64_t value = 0;
        memcpy(&value, args[i], type == "u64" || type == "f64" ? 8 : 4);
        if (type[0] == 'f') {
            double bits;
            memcpy(&bits, &value, 8);
            floats.push_back(bits);
        } else if (type == "u64" || type == "u32") {
            words.push_back(value);
        } else {
            return INVALID;
        }
    }
    // As many as it passes on, whatever the kernel takes.
    words.resize(28);
    floats.resize(2);
    typedef int (*Launch)(void *, unsigned, unsigned, const uint64_t *, const double *);
    Launch launch = (Launch)dlsym(kernel.module->library, "host_launch");
    if (!launch)
        return NOT_FOUND;
    void *entry = kernel.function;
    std::mutex &one = kernel.module->mutex;
    return stream->give([=, &one] {
        std::lock_guard<std::mutex> guard(one);
        return launch(entry, gx, bx, words.data(), floats.data()) == 0 ? OK : ILLEGAL;
    });
}
}
