/* A small libcuda.so.1 for tests.
 *
 * FAKE_CUDA lists the devices, one a line: "name|pools|vmm", where a negative number means that the driver does
 * not know the attribute. FAKE_CUDA_INIT is the answer of cuInit, FAKE_CUDA_VERSION that of cuDriverGetVersion;
 * FAKE_HANG makes cuInit hang, FAKE_CRASH makes it crash. An empty CUDA_VISIBLE_DEVICES hides everything.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct { char name[96]; int pools, vmm; } devices[16];
static int device_count;

int cuDriverGetVersion(int *version)
{
    *version = getenv("FAKE_CUDA_VERSION") ? atoi(getenv("FAKE_CUDA_VERSION")) : 12040;
    return 0;
}

int cuInit(unsigned flags)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char *text = strdup(getenv("FAKE_CUDA") ? getenv("FAKE_CUDA") : "");
    if (getenv("FAKE_HANG"))
        pause();
    if (getenv("FAKE_CRASH"))
        kill(getpid(), SIGKILL); /* not abort(): pytest would print a traceback for it */
    if (getenv("FAKE_CUDA_INIT"))
        return atoi(getenv("FAKE_CUDA_INIT"));
    if (visible && !*visible)
        return 100;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), device_count++)
        sscanf(line, "%95[^|]|%d|%d", devices[device_count].name, &devices[device_count].pools,
               &devices[device_count].vmm);
    return device_count ? 0 : 100;
}

#ifndef WITHOUT_COUNT
int cuDeviceGetCount(int *count) { *count = device_count; return 0; }
#endif
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }

int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, size, "%s", devices[device].name);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == 115 ? devices[device].pools : attribute == 102 ? devices[device].vmm : -1;
    return *value < 0 ? 1 : 0;
}
