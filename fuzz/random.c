// Preloaded into the fuzz targets: random bytes that are the same in every run, so that a run can be repeated. Hash maps
// iterate, and tokens are signed, by such bytes. Nothing else of the project sees it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>

// Constants of Knuth's MMIX. The targets have one thread.
ssize_t getrandom(void *buffer, size_t length, unsigned flags) {
  static uint64_t state;
  (void)flags;
  for (size_t at = 0; at < length; at++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ((uint8_t *)buffer)[at] = state >> 56;
  }
  return length;
}

// Some libraries go past getrandom(3).
long syscall(long number, ...) {
  static long (*real)(long, ...);
  if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (int at = 0; at < 6; at++) a[at] = va_arg(list, long);
  va_end(list);
  if (number == SYS_getrandom) return getrandom((void *)a[0], a[1], a[2]);
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
