/* The process of a pod's sandbox: it holds the pod's namespaces until SIGTERM. */
#include <signal.h>
#include <unistd.h>

static void end(int signal) {
    _exit(signal != SIGTERM);
}

int main(void) {
    signal(SIGTERM, end);
    for (;;)
        pause();
}
