/* Preloaded below the program under stress: reads of one file fail, are cut short or are interrupted, and writes find
 * no space, as long as a file of that name (eio, mix, nospace) is in the folder STRESS_FAULTS. STRESS_FILE is a part of
 * the path of the file whose reads fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_on(const char *fault) {
    char path[4096];
    const char *folder = getenv("STRESS_FAULTS");
    if (!folder) return 0;
    snprintf(path, sizeof path, "%s/%s", folder, fault);
    return access(path, F_OK) == 0;
}

static int is_the_file(int fd) {
    char link[64], path[4096];
    const char *part = getenv("STRESS_FILE");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (!part || n <= 0) return 0;
    path[n] = 0;
    return strstr(path, part) != NULL;
}

static unsigned dice(void) {
    static __thread unsigned state;
    if (!state) state = (unsigned)(size_t)&state ^ (unsigned)getpid();
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* The errno that a read of *size bytes fails with, or 0; it may make the read shorter. */
static int fault(int fd, size_t *size) {
    int saved = errno, answer = 0;
    if (is_the_file(fd)) {
        if (is_on("eio")) {
            answer = EIO;
        } else if (is_on("mix")) {
            unsigned n = dice() % 8;
            answer = n == 0 ? EINTR : n == 1 ? EIO : 0;
            if (n > 1 && n < 5 && *size > 1) *size = 1 + dice() % *size;
        }
    }
    errno = saved;
    return answer;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(error) return errno = (error), -1

ssize_t pread(int fd, void *buffer, size_t size, off_t at) {
    int error = fault(fd, &size);
    if (error) FAIL(error);
    return NEXT(pread)(fd, buffer, size, at);
}

ssize_t pread64(int fd, void *buffer, size_t size, off64_t at) {
    int error = fault(fd, &size);
    if (error) FAIL(error);
    return NEXT(pread64)(fd, buffer, size, at);
}

ssize_t read(int fd, void *buffer, size_t size) {
    int error = fault(fd, &size);
    if (error) FAIL(error);
    return NEXT(read)(fd, buffer, size);
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    struct iovec first = parts[0];
    int error = fault(fd, &first.iov_len);
    if (error) FAIL(error);
    if (first.iov_len < parts[0].iov_len) return NEXT(preadv2)(fd, &first, 1, at, flags);
    return NEXT(preadv2)(fd, parts, count, at, flags);
}

ssize_t pwrite(int fd, const void *buffer, size_t size, off_t at) {
    if (is_on("nospace")) FAIL(ENOSPC);
    return NEXT(pwrite)(fd, buffer, size, at);
}

ssize_t pwrite64(int fd, const void *buffer, size_t size, off64_t at) {
    if (is_on("nospace")) FAIL(ENOSPC);
    return NEXT(pwrite64)(fd, buffer, size, at);
}
