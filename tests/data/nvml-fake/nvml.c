/* A fake libnvidia-ml.so.1, small enough to read: see README.md beside it.
 *
 * FAKE_NVML_GPUS   how many GPUs there are (8)
 * FAKE_NVML_INIT   what nvmlInit returns (0); for example 9, the driver is not loaded
 * FAKE_NVML        a file with a line per GPU that is not well, read at every call:
 *                  "index error mig": what every call about it returns, and whether MIG is on
 *
 * Compiled with -DWITHOUT_POWER, -DWITHOUT_MIG or -DWITHOUT_TEMPERATURE a function is really
 * missing from the library, as it is from the library of an older driver.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS 64
#define OK 0
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7

typedef struct { int error, mig; } Gpu;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } Process;

static int number(const char *name, int otherwise)
{
    const char *said = getenv(name);
    return said && *said ? atoi(said) : otherwise;
}

static unsigned count(void) { return (unsigned)number("FAKE_NVML_GPUS", 8); }
static unsigned long index_of(void *handle) { return (unsigned long)handle - 1; }

static Gpu state(void *handle)
{
    Gpu gpu = {0, 0};
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : 0;
    int index, error, mig;
    while (file && fscanf(file, "%d %d %d", &index, &error, &mig) == 3)
        if (index == (int)index_of(handle)) { gpu.error = error; gpu.mig = mig; }
    if (file) fclose(file);
    return gpu;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return number("FAKE_NVML_INIT", OK); }
int nvmlInit_v2(void) { return number("FAKE_NVML_INIT", OK); }
int nvmlShutdown(void) { return OK; }

int nvmlSystemGetDriverVersion(char *text, unsigned length) { snprintf(text, length, "580.65.06"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *found) { *found = count(); return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    if (index >= count()) return NOT_FOUND;
    *handle = (void *)(unsigned long)(index + 1);
    return state(*handle).error;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    unsigned index;
    if (sscanf(uuid, "GPU-fake-%u", &index) != 1 || index >= count()) return NOT_FOUND;
    *handle = (void *)(unsigned long)(index + 1);
    return state(*handle).error;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned length)
{
    snprintf(text, length, "GPU-fake-%04lu", index_of(handle));
    return state(handle).error;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned length)
{
    snprintf(text, length, "NVIDIA H100 80GB HBM3 (fake)");
    return state(handle).error;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory)
{
    memory->total = 81559ULL << 20;
    memory->used = (1000 + index_of(handle)) << 20;
    memory->free = memory->total - memory->used;
    return state(handle).error;
}

int nvmlDeviceGetUtilizationRates(void *handle, Rates *rates)
{
    rates->gpu = 90 + (unsigned)index_of(handle);
    rates->memory = 40;
    return state(handle).error;
}

#ifndef WITHOUT_POWER
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { *milliwatts = 512345; return state(handle).error; }
#endif

#ifndef WITHOUT_TEMPERATURE
int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius)
{
    (void)sensor;
    *celsius = 61;
    return state(handle).error;
}
#endif

int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int since, unsigned long long *errors)
{
    (void)kind; (void)since;
    *errors = 3;
    return state(handle).error;
}

#ifndef WITHOUT_MIG
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending)
{
    *now = *pending = (unsigned)state(handle).mig;
    return state(handle).error;
}
#endif

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *length, Process *found)
{
    int error = state(handle).error;
    if (error) return error;
    if (index_of(handle) != 0) { *length = 0; return OK; }
    if (!found || *length < 1) { *length = 1; return INSUFFICIENT_SIZE; }
    *length = 1;
    memset(found, 0, sizeof *found);
    found->pid = 4242;
    found->used = 900ULL << 20;
    return OK;
}

const char *nvmlErrorString(int error) { return error == NOT_FOUND ? "Not Found" : error == NOT_SUPPORTED ? "Not Supported" : "Error"; }
