/* A small libnvidia-ml.so.1 for tests.
 *
 * FAKE_GPUS lists what is there, one entry a line: "UUID|name|total|free", "lost" for a GPU that has fallen off
 * the bus, and after a GPU with MIG on (a trailing "|mig") lines "mig UUID|total|free|gpu instance|compute
 * instance", which share its place. FAKE_INIT is the answer of nvmlInit_v2; FAKE_HANG makes it hang.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct device {
    int lost, has_mig, gpu_instance, compute_instance, mig_count;
    char uuid[96], name[96];
    unsigned long long total, free;
    struct device *migs[7];
};

static struct device devices[64];
static struct device *gpus[64];
static unsigned gpu_count;

static void load(void)
{
    char *text = strdup(getenv("FAKE_GPUS") ? getenv("FAKE_GPUS") : "");
    struct device *next = devices;
    gpu_count = 0;
    memset(devices, 0, sizeof devices);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), next++) {
        if (strncmp(line, "mig ", 4) == 0) {
            struct device *parent = gpus[gpu_count - 1];
            sscanf(line, "mig %95[^|]|%llu|%llu|%d|%d", next->uuid, &next->total, &next->free,
                   &next->gpu_instance, &next->compute_instance);
            parent->migs[parent->mig_count++] = next;
        } else {
            next->lost = strcmp(line, "lost") == 0;
            next->has_mig = strstr(line, "|mig") != NULL;
            sscanf(line, "%95[^|]|%95[^|]|%llu|%llu", next->uuid, next->name, &next->total, &next->free);
            gpus[gpu_count++] = next;
        }
    }
}

int nvmlInit_v2(void)
{
    if (getenv("FAKE_HANG"))
        pause();
    load();
    puts("noise that a library may print");
    fflush(stdout);
    return getenv("FAKE_INIT") ? atoi(getenv("FAKE_INIT")) : 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "550.54.15"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = gpu_count; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    *device = gpus[index];
    return gpus[index]->lost ? 15 : 0;
}

#ifndef WITHOUT_UUID
int nvmlDeviceGetUUID(struct device *device, char *text, unsigned size)
{
    snprintf(text, size, "%s", device->uuid);
    return 0;
}
#endif

int nvmlDeviceGetName(struct device *device, char *text, unsigned size)
{
    snprintf(text, size, "%s", device->name);
    return 0;
}

int nvmlDeviceGetMemoryInfo(struct device *device, unsigned long long *info)
{
    info[0] = device->total;
    info[1] = device->free;
    info[2] = device->total - device->free;
    return device->has_mig ? 4 : 0;
}

int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending)
{
    *current = *pending = device->has_mig;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count) { *count = 7; return 0; }

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index, struct device **mig)
{
    if ((int)index >= device->mig_count)
        return 6;
    *mig = device->migs[index];
    return 0;
}

int nvmlDeviceGetGpuInstanceId(struct device *device, unsigned *id) { *id = device->gpu_instance; return 0; }
int nvmlDeviceGetComputeInstanceId(struct device *device, unsigned *id) { *id = device->compute_instance; return 0; }
