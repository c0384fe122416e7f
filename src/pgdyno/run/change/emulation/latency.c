/* Make reads, flushes and synchronous writes of emulated disks take as long as on the declared ones.
 *
 * Preloaded into every program of a study. A call that had to wait for an emulated device lasts as long as is declared;
 * what the page cache served did not sleep, and is not delayed. DEVICES is given to the compiler: { device, flush_ns, read_ns }.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct device {
  uint64_t id;
  int64_t flush_ns, read_ns;
};
static const struct device devices[] = {DEVICES};

enum call { READ, WRITE, FLUSH };

struct start {
  struct timespec at;
  long sleeps;
};

/* The default slack of 50 microseconds would lengthen each sleep; children and threads inherit this. */
__attribute__((constructor)) static void sleep_exactly(void) { prctl(PR_SET_TIMERSLACK, 1); }

static long count_sleeps(void) {
  struct rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
}

static struct start begin(void) {
  struct start start;
  clock_gettime(CLOCK_MONOTONIC, &start.at);
  start.sleeps = count_sleeps();
  return start;
}

static int64_t find_latency(int file, enum call call) {
  struct stat stat;
  if (fstat(file, &stat) != 0) return 0;
  for (unsigned i = 0; i < sizeof devices / sizeof *devices; i++) {
    if (devices[i].id != stat.st_dev) continue;
    if (call == READ) return devices[i].read_ns;
    if (call == FLUSH) return devices[i].flush_ns;
    int flags = fcntl(file, F_GETFL);
    return flags >= 0 && flags & (O_DSYNC | O_DIRECT) ? devices[i].flush_ns : 0;
  }
  return 0;
}

static int64_t ns_since(struct timespec start) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - start.tv_sec) * INT64_C(1000000000) + now.tv_nsec - start.tv_nsec;
}

/* How much later than asked this thread wakes up, on average; the next sleep is shorter by that, so that latencies are as
 * declared on average. No call gets less than half of what is declared. */
static __thread int64_t late_ns;

static void last(struct timespec start, int64_t latency) {
  int64_t least = latency - (late_ns < latency / 2 ? late_ns : latency / 2);
  if (ns_since(start) >= least) return;
  int64_t end = start.tv_nsec + least;
  struct timespec until = {start.tv_sec + end / 1000000000, end % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
  }
  int64_t late = ns_since(start) - least;
  late_ns += ((late < latency ? late : latency) - late_ns) / 8;
}

static void finish(struct start start, int file, enum call call, ssize_t result) {
  if (result < 0 || count_sleeps() == start.sleeps) return;
  int before = errno;
  int64_t latency = find_latency(file, call);
  if (latency > 0) last(start.at, latency);
  errno = before;
}

#define DELAYED(type, name, call, parameters, ...)                                             \
  type name parameters {                                                                       \
    static type(*real) parameters;                                                             \
    if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name);                             \
    struct start start = begin();                                                              \
    type result = real(__VA_ARGS__);                                                           \
    finish(start, file, call, result);                                                         \
    return result;                                                                             \
  }

DELAYED(int, fsync, FLUSH, (int file), file)
DELAYED(int, fdatasync, FLUSH, (int file), file)
DELAYED(ssize_t, pread, READ, (int file, void *to, size_t size, off_t at), file, to, size, at)
DELAYED(ssize_t, pread64, READ, (int file, void *to, size_t size, off64_t at), file, to, size, at)
DELAYED(ssize_t, preadv, READ, (int file, const struct iovec *to, int count, off_t at), file, to, count, at)
DELAYED(ssize_t, preadv64, READ, (int file, const struct iovec *to, int count, off64_t at), file, to, count, at)
DELAYED(ssize_t, preadv2, READ, (int file, const struct iovec *to, int count, off_t at, int how), file, to, count, at, how)
DELAYED(ssize_t, preadv64v2, READ, (int file, const struct iovec *to, int count, off64_t at, int how), file, to, count, at, how)
DELAYED(ssize_t, pwrite, WRITE, (int file, const void *from, size_t size, off_t at), file, from, size, at)
DELAYED(ssize_t, pwrite64, WRITE, (int file, const void *from, size_t size, off64_t at), file, from, size, at)
DELAYED(ssize_t, pwritev, WRITE, (int file, const struct iovec *from, int count, off_t at), file, from, count, at)
DELAYED(ssize_t, pwritev64, WRITE, (int file, const struct iovec *from, int count, off64_t at), file, from, count, at)
DELAYED(ssize_t, pwritev2, WRITE, (int file, const struct iovec *from, int count, off_t at, int how), file, from, count, at, how)
DELAYED(ssize_t, pwritev64v2, WRITE, (int file, const struct iovec *from, int count, off64_t at, int how), file, from, count, at, how)
DELAYED(ssize_t, write, WRITE, (int file, const void *from, size_t size), file, from, size)
