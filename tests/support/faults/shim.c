/* Faults at the border to the kernel, for tests: preloaded, it counts the calls that change a file system
 * under one folder, writes each of them down, and makes one of them fail, stop half-way or be the last.
 *
 * Armed by faults_arm() in a forked child, or by the environment in a program of its own:
 *   HEARSAY_FAULTS_UNDER  the folder, as an absolute path without links
 *   HEARSAY_FAULTS_LOG    where calls are written down; outside of that folder
 *   HEARSAY_FAULTS_KIND   none | kill | kill_after | fail | fail_from | tear | short
 *   HEARSAY_FAULTS_AT     the number of the call, from 1
 *   HEARSAY_FAULTS_ERRNO  what a failing call says
 * What a power cut forgets is worked out from the log, by disk.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, KILL, KILL_AFTER, FAIL, FAIL_FROM, TEAR, SHORT };
static const char *const KINDS[] = {"none", "kill", "kill_after", "fail", "fail_from", "tear", "short"};

/* The numbers are known to disk.py. */
enum { CREATE = 1, WRITE, TRUNCATE, SYNC, SYNC_FOLDER, RENAME, LINK, UNLINK, MKDIR, RMDIR, MARK };

struct record {
    uint32_t op, error, first_bytes, second_bytes, data_bytes, unused;
    uint64_t inode;
    int64_t offset;
};

static char under[PATH_MAX];
static size_t under_length;
static int log_descriptor = -1;
static int kind = NONE, fault_errno = EIO;
static long at, calls;

_Static_assert(sizeof(long) == 8, "offsets are passed to the kernel in one register");

/* While armed, the kernel's randomness is the same for the same seed: what is left can be compared, a failure
 * repeated. A later process is given another one, so that a second answer is a different one. */
static uint64_t chance = 1;

void faults_seed(uint64_t seed) { chance = seed; }

void faults_arm(const char *folder, const char *log, int which, long number, int error) {
    snprintf(under, sizeof under, "%s", folder);
    under_length = strlen(under);
    kind = which, at = number, fault_errno = error, calls = 0;
    int opened = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (opened < 0) abort();
    log_descriptor = fcntl(opened, F_DUPFD_CLOEXEC, 200); /* out of the way of code that counts descriptors */
    syscall(SYS_close, opened);
}

/* No further fault; calls are still counted and written down. */
void faults_spare(void) { kind = NONE; }

void faults_disarm(void) {
    under_length = 0;
    if (log_descriptor >= 0) syscall(SYS_close, log_descriptor);
    log_descriptor = -1;
}

long faults_calls(void) { return calls; }

__attribute__((constructor)) static void from_environment(void) {
    const char *folder = getenv("HEARSAY_FAULTS_UNDER"), *log = getenv("HEARSAY_FAULTS_LOG");
    if (!folder || !log) return;
    const char *name = getenv("HEARSAY_FAULTS_KIND"), *number = getenv("HEARSAY_FAULTS_AT");
    const char *error = getenv("HEARSAY_FAULTS_ERRNO");
    int which = NONE;
    for (int each = NONE; each <= SHORT; each++)
        if (name && !strcmp(name, KINDS[each])) which = each;
    faults_seed(getpid());
    faults_arm(folder, log, which, number ? atol(number) : 0, error ? atoi(error) : EIO);
}

static void fill(unsigned char *into, size_t length) {
    for (size_t each = 0; each < length; each++) {
        chance = chance * 6364136223846793005u + 1442695040888963407u;
        into[each] = chance >> 56;
    }
}

ssize_t getrandom(void *into, size_t length, unsigned flags) {
    if (!under_length) return syscall(SYS_getrandom, into, length, flags);
    fill(into, length);
    return length;
}

static int random_file(void) {
    unsigned char bytes[4096];
    int descriptor = syscall(SYS_memfd_create, "random", 1);
    fill(bytes, sizeof bytes);
    if (descriptor < 0 || syscall(SYS_pwrite64, descriptor, bytes, sizeof bytes, 0) < 0) abort();
    return descriptor;
}

static void put(const void *bytes, size_t length) {
    const char *from = bytes;
    while (length) {
        ssize_t done = syscall(SYS_write, log_descriptor, from, length);
        if (done <= 0) abort();
        from += done, length -= done;
    }
}

static void note(uint32_t op, int error, const char *first, const char *second, uint64_t inode, int64_t offset,
                 const void *data, size_t length) {
    struct record record = {op, error, strlen(first), second ? strlen(second) : 0, length, 0, inode, offset};
    put(&record, sizeof record);
    put(first, record.first_bytes);
    put(second, record.second_bytes);
    put(data, length);
}

/* Something that the test wants to find at its place among the calls. */
void faults_mark(const char *text) {
    if (log_descriptor >= 0) note(MARK, 0, text, NULL, 0, 0, NULL, 0);
}

static int inside(const char *path) {
    return under_length && !strncmp(path, under, under_length) && (path[under_length] == '/' || !path[under_length]);
}

static void path_of(int descriptor, char *into) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, into, PATH_MAX - 1);
    into[length < 0 ? 0 : length] = 0;
}

static int in_descriptor(int descriptor, char *into) {
    if (!under_length || descriptor == log_descriptor) return 0;
    path_of(descriptor, into);
    return inside(into);
}

static int in_path(int folder, const char *path, char *into) {
    if (!under_length || !path) return 0;
    if (path[0] == '/') {
        snprintf(into, PATH_MAX, "%s", path);
    } else {
        char base[PATH_MAX];
        if (folder == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return 0;
        } else {
            path_of(folder, base);
        }
        if (snprintf(into, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
    }
    return inside(into);
}

static void stop(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* Count a call that concerns us and say what is to become of it. */
static int next_fault(void) {
    calls++;
    if (calls == at && kind == KILL) stop();
    return calls == at || (kind == FAIL_FROM && calls >= at) ? kind : NONE;
}

static void finish(int fault) {
    if (fault == KILL_AFTER) stop();
}

static uint64_t inode_of(int descriptor, int *folder) {
    struct stat found;
    int saved = errno;
    if (fstat(descriptor, &found)) memset(&found, 0, sizeof found);
    errno = saved;
    if (folder) *folder = S_ISDIR(found.st_mode);
    return found.st_ino;
}

/* What a full disk refuses is what needs room; nothing else is refused again and again. */
static int fails(int fault, int needs_room) {
    return fault == FAIL || (fault == FAIL_FROM && (fault_errno != ENOSPC || needs_room));
}

/* Writes ------------------------------------------------------------------------------------------- */

typedef ssize_t (*write_call)(int, const void *, size_t, off64_t);

static ssize_t plain_write(int descriptor, const void *data, size_t length, off64_t offset) {
    (void)offset;
    return syscall(SYS_write, descriptor, data, length);
}

static ssize_t placed_write(int descriptor, const void *data, size_t length, off64_t offset) {
    return syscall(SYS_pwrite64, descriptor, data, length, offset);
}

static ssize_t written(int descriptor, const void *data, size_t length, off64_t offset, write_call call) {
    char path[PATH_MAX];
    if (!in_descriptor(descriptor, path)) return call(descriptor, data, length, offset);
    uint64_t inode = inode_of(descriptor, NULL);
    if (call == plain_write) {
        struct stat found = {0};
        fstat(descriptor, &found);
        offset = fcntl(descriptor, F_GETFL) & O_APPEND ? found.st_size : lseek64(descriptor, 0, SEEK_CUR);
    }
    int fault = next_fault();
    if (fails(fault, 1)) {
        note(WRITE, fault_errno, path, NULL, inode, offset, NULL, 0);
        errno = fault_errno;
        return -1;
    }
    if ((fault == TEAR || fault == SHORT) && length > 1) length /= 2;
    ssize_t done = call(descriptor, data, length, offset);
    int error = errno;
    note(WRITE, done < 0 ? error : 0, path, NULL, inode, offset, data, done < 0 ? 0 : done);
    if (fault == TEAR) stop();
    finish(fault);
    errno = error;
    return done;
}

ssize_t write(int descriptor, const void *data, size_t length) {
    return written(descriptor, data, length, 0, plain_write);
}

ssize_t pwrite(int descriptor, const void *data, size_t length, off_t offset) {
    return written(descriptor, data, length, offset, placed_write);
}

ssize_t pwrite64(int descriptor, const void *data, size_t length, off64_t offset) {
    return written(descriptor, data, length, offset, placed_write);
}

static ssize_t gathered(int descriptor, const struct iovec *parts, int count, off64_t offset, write_call call) {
    size_t length = 0;
    for (int each = 0; each < count; each++) length += parts[each].iov_len;
    char *data = malloc(length + 1), *end = data;
    if (!data) abort();
    for (int each = 0; each < count; each++) end = mempcpy(end, parts[each].iov_base, parts[each].iov_len);
    ssize_t done = written(descriptor, data, length, offset, call);
    int error = errno;
    free(data);
    errno = error;
    return done;
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    return gathered(descriptor, parts, count, 0, plain_write);
}

ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t offset) {
    return gathered(descriptor, parts, count, offset, placed_write);
}

ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t offset) {
    return gathered(descriptor, parts, count, offset, placed_write);
}

/* Sizes and flushes -------------------------------------------------------------------------------- */

static int on_descriptor(uint32_t op, int descriptor, off64_t size, long number) {
    char path[PATH_MAX];
    int seen = in_descriptor(descriptor, path), folder = 0, fault = NONE, error = 0;
    uint64_t inode = 0;
    if (seen) {
        inode = inode_of(descriptor, &folder);
        if (op == SYNC && folder) op = SYNC_FOLDER;
        fault = next_fault();
        if (fails(fault, 0)) error = fault_errno;
    }
    if (!error && syscall(number, descriptor, size)) error = errno;
    if (seen) {
        note(op, error, path, NULL, inode, size, NULL, 0);
        finish(fault);
    }
    errno = error;
    return error ? -1 : 0;
}

int fsync(int descriptor) { return on_descriptor(SYNC, descriptor, 0, SYS_fsync); }
int fdatasync(int descriptor) { return on_descriptor(SYNC, descriptor, 0, SYS_fdatasync); }
int ftruncate(int descriptor, off_t size) { return on_descriptor(TRUNCATE, descriptor, size, SYS_ftruncate); }
int ftruncate64(int descriptor, off64_t size) { return on_descriptor(TRUNCATE, descriptor, size, SYS_ftruncate); }

/* Names -------------------------------------------------------------------------------------------- */

static int renamed(int from, const char *old, int to, const char *new, unsigned flags) {
    char first[PATH_MAX], second[PATH_MAX];
    int seen = in_path(from, old, first) | in_path(to, new, second), fault = NONE, error = 0;
    if (seen && fails(fault = next_fault(), 0)) error = fault_errno;
    if (!error && syscall(SYS_renameat2, from, old, to, new, flags)) error = errno;
    if (seen) {
        note(RENAME, error, first, second, 0, 0, NULL, 0);
        finish(fault);
    }
    errno = error;
    return error ? -1 : 0;
}

int rename(const char *old, const char *new) { return renamed(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return renamed(from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return renamed(from, old, to, new, flags);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    char first[PATH_MAX], second[PATH_MAX];
    int seen = in_path(from, old, first) | in_path(to, new, second), fault = NONE, error = 0;
    if (seen && fails(fault = next_fault(), 1)) error = fault_errno;
    if (!error && syscall(SYS_linkat, from, old, to, new, flags)) error = errno;
    if (seen) {
        note(LINK, error, first, second, 0, 0, NULL, 0);
        finish(fault);
    }
    errno = error;
    return error ? -1 : 0;
}

int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

int unlinkat(int folder, const char *path, int flags) {
    char full[PATH_MAX];
    int seen = in_path(folder, path, full), fault = NONE, error = 0;
    if (seen && fails(fault = next_fault(), 0)) error = fault_errno;
    if (!error && syscall(SYS_unlinkat, folder, path, flags)) error = errno;
    if (seen) {
        note(flags & AT_REMOVEDIR ? RMDIR : UNLINK, error, full, NULL, 0, 0, NULL, 0);
        finish(fault);
    }
    errno = error;
    return error ? -1 : 0;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int folder, const char *path, mode_t mode) {
    char full[PATH_MAX];
    int seen = in_path(folder, path, full), fault = NONE, error = 0;
    if (seen && fails(fault = next_fault(), 1)) error = fault_errno;
    if (!error && syscall(SYS_mkdirat, folder, path, mode)) error = errno;
    if (seen) {
        note(MKDIR, error, full, NULL, 0, 0, NULL, 0);
        finish(fault);
    }
    errno = error;
    return error ? -1 : 0;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* An open that makes a file or empties it changes the disk; any other is not counted. */
static int opened(int folder, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    struct stat found;
    uint32_t op = 0;
    if (under_length && !strcmp(path, "/dev/urandom")) return random_file();
    if (flags & (O_CREAT | O_TRUNC) && in_path(folder, path, full)) {
        if (syscall(SYS_newfstatat, folder, path, &found, AT_SYMLINK_NOFOLLOW)) {
            op = flags & O_CREAT ? CREATE : 0;
        } else if (flags & O_TRUNC && found.st_size && !(flags & O_EXCL)) {
            op = TRUNCATE;
        }
    }
    if (!op) return syscall(SYS_openat, folder, path, flags, mode);
    int fault = next_fault(), error = fails(fault, op == CREATE) ? fault_errno : 0, descriptor = -1;
    if (!error && (descriptor = syscall(SYS_openat, folder, path, flags, mode)) < 0) error = errno;
    note(op, error, full, NULL, descriptor < 0 ? 0 : inode_of(descriptor, NULL), 0, NULL, 0);
    finish(fault);
    errno = error;
    return descriptor;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    MODE(flags)
    return opened(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags)
    return opened(folder, path, flags, mode);
}

/* Ways to change a file that nothing here follows: better no test than a blind one. ---------------- */

static void blind(int descriptor) {
    char path[PATH_MAX];
    if (in_descriptor(descriptor, path)) abort();
}

ssize_t copy_file_range(int from, off64_t *start, int to, off64_t *target, size_t length, unsigned flags) {
    blind(to);
    return syscall(SYS_copy_file_range, from, start, to, target, length, flags);
}

ssize_t sendfile(int to, int from, off_t *start, size_t length) {
    blind(to);
    return syscall(SYS_sendfile, to, from, start, length);
}

ssize_t sendfile64(int to, int from, off64_t *start, size_t length) {
    blind(to);
    return syscall(SYS_sendfile, to, from, start, length);
}

int fallocate(int descriptor, int mode, off_t offset, off_t length) {
    blind(descriptor);
    return syscall(SYS_fallocate, descriptor, mode, offset, length);
}

int fallocate64(int descriptor, int mode, off64_t offset, off64_t length) {
    blind(descriptor);
    return syscall(SYS_fallocate, descriptor, mode, offset, length);
}

int posix_fallocate(int descriptor, off_t offset, off_t length) {
    blind(descriptor);
    return syscall(SYS_fallocate, descriptor, 0, offset, length) ? errno : 0;
}

int posix_fallocate64(int descriptor, off64_t offset, off64_t length) {
    blind(descriptor);
    return syscall(SYS_fallocate, descriptor, 0, offset, length) ? errno : 0;
}

int truncate(const char *path, off_t size) {
    char full[PATH_MAX];
    if (in_path(AT_FDCWD, path, full)) abort();
    return syscall(SYS_truncate, path, size);
}
