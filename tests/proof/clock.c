/* A wall clock that tests set: preloaded, it moves CLOCK_REALTIME (also the coarse one) of one process.
 *
 * FALAJ_CLOCK names a file of eight bytes: nanoseconds to add, as they are at each call. Callers of
 * libc are served by the functions below. Who calls the kernel by itself, through the vDSO, is told
 * that there is none (getauxval), and its system call is then caught by a filter and answered here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static const volatile int64_t *ahead;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static unsigned long (*real_getauxval)(unsigned long);

static int told(clockid_t clock, struct timespec *to)
{
    int result = real_clock_gettime(clock, to);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = (int64_t)to->tv_sec * 1000000000 + to->tv_nsec + *ahead;
        int64_t seconds = ns / 1000000000;
        if (ns % 1000000000 < 0)
            seconds--;
        to->tv_sec = seconds;
        to->tv_nsec = ns - seconds * 1000000000;
    }
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *to)
{
    return told(clock, to);
}

int gettimeofday(struct timeval *restrict to, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    told(CLOCK_REALTIME, &now);
    to->tv_sec = now.tv_sec;
    to->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to)
{
    struct timespec now;
    told(CLOCK_REALTIME, &now);
    if (to)
        *to = now.tv_sec;
    return now.tv_sec;
}

unsigned long getauxval(unsigned long kind)
{
    if (!real_getauxval)
        real_getauxval = (unsigned long (*)(unsigned long))dlsym(RTLD_NEXT, "getauxval");
    return kind == AT_SYSINFO_EHDR ? 0 : real_getauxval(kind);
}

/* The C library reads the clock without a system call, so this one does not catch itself. */
static void caught(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)number;
    (void)info;
    registers[REG_RAX] = told((clockid_t)registers[REG_RDI], (struct timespec *)registers[REG_RSI]) ? -EINVAL : 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FALAJ_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    ahead = mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
    if (ahead == MAP_FAILED)
        _exit(99);
    struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    sigaction(SIGSYS, &action, NULL);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(98);
}
