/* Counts what a process does to the files below one directory, and disturbs it.

   Loaded before the C library (LD_PRELOAD), so that it sees Python's operations and those
   of every library alike. It does nothing before file_faults_arm is called. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL, FULL, EIO_ONCE };

static char root[PATH_MAX];
static int armed, fault, journal;
static long at;
static atomic_long counter;

void file_faults_arm(const char *directory, int kind, long operation, int log) {
  snprintf(root, sizeof root, "%s", directory);
  fault = kind, at = operation, journal = log;
  counter = 0;
  armed = 1;
}

static int below(const char *path) {
  size_t n = strlen(root);
  return strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == 0);
}

/* The path of an open file; "" if it has none. */
static void path_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, PATH_MAX - 1);
  path[n < 0 ? 0 : n] = 0;
}

/* An absolute path without links in its directories; "" where there is none such. */
static void resolve(int directory, const char *path, char *whole) {
  char joined[PATH_MAX + PATH_MAX + 2], own[PATH_MAX];
  whole[0] = 0;
  if (path[0] == '/') {
    snprintf(joined, sizeof joined, "%s", path);
  } else {
    if (directory == AT_FDCWD) {
      if (!getcwd(own, sizeof own)) return;
    } else {
      path_of(directory, own);
    }
    snprintf(joined, sizeof joined, "%s/%s", own, path);
  }
  size_t n = strlen(joined);
  while (n > 1 && joined[n - 1] == '/') joined[--n] = 0;
  char *name = strrchr(joined, '/');
  *name++ = 0;
  if (!realpath(joined[0] ? joined : "/", own)) return;
  snprintf(whole, PATH_MAX, "%.*s/%.*s", PATH_MAX / 2, own, PATH_MAX / 2 - 2, name);
}

/* Counts an operation. Returns the error that it is to fail with, 0 to go on, -1 to be
   cut short: half of it is done, and then what the fault says. */
static int struck(const char *operation, const char *path, int needs_space, int is_write) {
  if (!armed || !below(path)) return 0;
  long number = ++counter;
  int now = fault == KILL || fault == EIO_ONCE ? number == at : fault == FULL && number >= at;
  char line[PATH_MAX + 64];
  int n = snprintf(line, sizeof line, "%s\t%ld\t%s\t%s\n", number == at ? "*" : "-", number,
                   operation, path + strlen(root));
  syscall(SYS_write, journal, line, (size_t)n);
  if (!now) return 0;
  if (is_write && fault != EIO_ONCE && number == at) return -1;
  if (fault == KILL) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
  if (fault == FULL) return needs_space ? ENOSPC : 0;
  return EIO;
}

#define NEXT(name) \
  static __typeof__(name) *next; \
  if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define FAIL_IF(error) \
  do { \
    int own = (error); \
    if (own) { errno = own; return -1; } \
  } while (0)

#define WRITE(name, parameters, whole, half) \
  ssize_t name parameters { \
    NEXT(name); \
    char path[PATH_MAX]; \
    if (!armed) return whole; \
    path_of(fd, path); \
    int error = struck("write", path, 1, n > 1); \
    if (error == -1) { \
      ssize_t done = half; \
      if (fault == KILL) { kill(getpid(), SIGKILL); for (;;) pause(); } \
      return done; \
    } \
    FAIL_IF(error); \
    return whole; \
  }

WRITE(write, (int fd, const void *data, size_t n), next(fd, data, n), next(fd, data, n / 2))
WRITE(pwrite, (int fd, const void *data, size_t n, off_t where), next(fd, data, n, where),
      next(fd, data, n / 2, where))
WRITE(pwrite64, (int fd, const void *data, size_t n, off64_t where),
      next(fd, data, n, where), next(fd, data, n / 2, where))
WRITE(writev, (int fd, const struct iovec *data, int n), next(fd, data, n),
      next(fd, data, n / 2))

#define OF_FILE(name, parameters, arguments, needs_space) \
  int name parameters { \
    NEXT(name); \
    char path[PATH_MAX]; \
    if (armed) { \
      path_of(fd, path); \
      FAIL_IF(struck(#name, path, needs_space, 0)); \
    } \
    return next arguments; \
  }

OF_FILE(fsync, (int fd), (fd), 1)
OF_FILE(fdatasync, (int fd), (fd), 1)
OF_FILE(ftruncate, (int fd, off_t size), (fd, size), 1)
OF_FILE(ftruncate64, (int fd, off64_t size), (fd, size), 1)

#define OF_PATH(name, operation, parameters, directory, old, arguments, needs_space) \
  int name parameters { \
    NEXT(name); \
    char path[PATH_MAX]; \
    if (armed) { \
      resolve(directory, old, path); \
      FAIL_IF(struck(operation, path, needs_space, 0)); \
    } \
    return next arguments; \
  }

OF_PATH(mkdir, "mkdir", (const char *name, mode_t mode), AT_FDCWD, name, (name, mode), 1)
OF_PATH(mkdirat, "mkdir", (int fd, const char *name, mode_t mode), fd, name,
        (fd, name, mode), 1)
OF_PATH(unlink, "unlink", (const char *name), AT_FDCWD, name, (name), 0)
OF_PATH(rmdir, "rmdir", (const char *name), AT_FDCWD, name, (name), 0)
OF_PATH(unlinkat, flags & AT_REMOVEDIR ? "rmdir" : "unlink",
        (int fd, const char *name, int flags), fd, name, (fd, name, flags), 0)
OF_PATH(rename, "rename", (const char *old, const char *new), AT_FDCWD, old, (old, new), 1)
OF_PATH(renameat, "rename", (int fd, const char *old, int to, const char *new), fd, old,
        (fd, old, to, new), 1)
OF_PATH(renameat2, "rename",
        (int fd, const char *old, int to, const char *new, unsigned flags), fd, old,
        (fd, old, to, new, flags), 1)
OF_PATH(link, "link", (const char *old, const char *new), AT_FDCWD, new, (old, new), 1)
OF_PATH(linkat, "link", (int fd, const char *old, int to, const char *new, int flags), to,
        new, (fd, old, to, new, flags), 1)

/* Opening counts where it makes a file or empties one. */
#define OPEN(name, parameters, directory, call) \
  int name parameters { \
    NEXT(name); \
    char whole[PATH_MAX]; \
    mode_t mode = 0; \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) { \
      va_list more; \
      va_start(more, flags); \
      mode = va_arg(more, mode_t); \
      va_end(more); \
    } \
    if (armed && flags & (O_CREAT | O_TRUNC)) { \
      resolve(directory, path, whole); \
      FAIL_IF(struck("open", whole, 1, 0)); \
    } \
    return next call; \
  }

OPEN(open, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN(openat, (int fd, const char *path, int flags, ...), fd, (fd, path, flags, mode))
OPEN(openat64, (int fd, const char *path, int flags, ...), fd, (fd, path, flags, mode))
