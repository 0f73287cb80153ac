/* A libnvidia-ml.so.1 for tests, built against NVIDIA's own header, so that the compiler holds every signature to it.
 *
 * The file that FAKE_NVML_STATE names is read anew at every call; "key=value" lines, with ".3" at the end of a key for
 * GPU 3 alone:
 *   count            how many GPUs (8)
 *   ret.CALL         the nvmlReturn_t of a call; ret.gpu for all calls about a GPU
 *   hang.CALL        the call does not come back while this is there
 *   crash.CALL       the call takes its process with it
 *   start.gpu        calls about the GPU say GPU_IS_LOST before NVML was started this often
 *   CALL             the value; for calls with two of them also CALL.b
 *   field.ID         the value of a field, fieldret.ID its nvmlReturn_t
 *   pids             how many processes
 *   mig              how many instances; none is MIG switched off
 *   xid.N            the Nth Xid event, GPU times 100000 plus code
 *   log              a file that gets a line for each call
 * CALL is the name without "nvml" and "DeviceGet". With -DOLD it is a library of long ago.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <nvml.h>

#define EXPORT __attribute__((visibility("default")))

static int find(const char *key, char *value, size_t size) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return 0;
    char line[512];
    size_t length = strlen(key);
    int found = 0;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == '=') {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

/* "prefix.name.index", then "prefix.name". */
static long long number(const char *prefix, const char *name, int index, long long otherwise) {
    char key[128], value[64];
    snprintf(key, sizeof key, "%s%s%s.%d", prefix, *prefix ? "." : "", name, index);
    if (index >= 0 && find(key, value, sizeof value)) return strtoll(value, NULL, 0);
    snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", name);
    if (find(key, value, sizeof value)) return strtoll(value, NULL, 0);
    return otherwise;
}

static int references, starts;
static long long delivered;

static int index_of(nvmlDevice_t device) {
    size_t handle = (size_t)device;
    return (int)(handle >= 1000 ? handle / 1000 - 1 : handle - 1);
}

static nvmlReturn_t enter(const char *call, int index) {
    char path[256];
    if (find("log", path, sizeof path)) {
        FILE *log = fopen(path, "a");
        if (log) {
            fprintf(log, "%s %d\n", call, index);
            fclose(log);
        }
    }
    while (number("hang", call, index, 0)) usleep(10000);
    if (number("crash", call, index, 0)) abort();
    if (index >= 0) {
        if (starts < number("start", "gpu", index, 0)) return NVML_ERROR_GPU_IS_LOST;
        nvmlReturn_t result = (nvmlReturn_t)number("ret", "gpu", index, 0);
        if (result) return result;
    }
    return (nvmlReturn_t)number("ret", call, index, 0);
}

#define SYSTEM(call) { nvmlReturn_t result = enter(call, -1); if (result) return result; }
#define DEVICE(call) int index = index_of(device); { nvmlReturn_t result = enter(call, index); if (result) return result; }
#define VALUE(call, otherwise) number("", call, index, otherwise)

EXPORT nvmlReturn_t nvmlInit_v2(void) {
    SYSTEM("Init")
    if (references++ == 0) {
        starts++;
    }
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlShutdown(void) {
    references--;
    return NVML_SUCCESS;
}
EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    return result ? "an error" : "success";
}
EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    SYSTEM("SystemGetDriverVersion")
    if (!find("driver", version, length)) snprintf(version, length, "570.133.20");
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    SYSTEM("Count")
    *count = (unsigned int)number("", "count", -1, 8);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int wanted, nvmlDevice_t *device) {
    nvmlReturn_t result = enter("HandleByIndex", (int)wanted);
    if (result) return result;
    if (wanted >= (unsigned int)number("", "count", -1, 8)) return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)(size_t)(wanted + 1);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    DEVICE("Name")
    snprintf(name, length, "NVIDIA H200");
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    DEVICE("UUID")
    size_t handle = (size_t)device;
    if (handle >= 1000) snprintf(uuid, length, "MIG-%d-%zu", index, handle % 1000 - 1);
    else snprintf(uuid, length, "GPU-%lld", VALUE("uuid", index));
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    DEVICE("PciInfo")
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%d9:00.0", index);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    DEVICE("UtilizationRates")
    rates->gpu = (unsigned int)VALUE("UtilizationRates", 90 + index);
    rates->memory = (unsigned int)VALUE("UtilizationRates.b", 40);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power) {
    DEVICE("PowerUsage")
    *power = (unsigned int)VALUE("PowerUsage", 612400);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit) {
    DEVICE("EnforcedPowerLimit")
    *limit = (unsigned int)VALUE("EnforcedPowerLimit", 700000);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *temperature) {
    DEVICE("Temperature")
    if (sensor != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    *temperature = (unsigned int)VALUE("Temperature", 61);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock) {
    DEVICE("ClockInfo")
    *clock = (unsigned int)(type == NVML_CLOCK_SM ? VALUE("ClockInfo", 1830) : VALUE("ClockInfo.b", 3201));
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock) {
    DEVICE("MaxClockInfo")
    (void)type;
    *clock = 1980;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    DEVICE("CurrentClocksThrottleReasons")
    *reasons = (unsigned long long)VALUE("CurrentClocksThrottleReasons", nvmlClocksEventReasonSwPowerCap);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *value) {
    DEVICE("PcieThroughput")
    *value = (unsigned int)(counter == NVML_PCIE_UTIL_RX_BYTES ? VALUE("PcieThroughput", 2100000) : VALUE("PcieThroughput.b", 340000));
    return NVML_SUCCESS;
}
#ifndef OLD
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    DEVICE("MemoryInfo")
    if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    int part = (size_t)device >= 1000;
    memory->total = (unsigned long long)VALUE("MemoryInfo", part ? 19327352832LL : 150754820096LL);
    memory->used = (unsigned long long)VALUE("MemoryInfo.b", part ? 1073741824LL : 8178892LL);
    memory->reserved = part ? 0 : 956301312ULL;
    memory->free = memory->total - memory->used - memory->reserved;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    DEVICE("FieldValues")
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "%u", values[i].fieldId);
        long long otherwise = 0;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        switch (values[i].fieldId) {
            case NVML_FI_DEV_MEMORY_TEMP: otherwise = 72; break;
            case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: otherwise = 48213577250LL; break;
            case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX:
            case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: otherwise = values[i].scopeId == (unsigned int)-1 ? 1800 : 100; break;
            case NVML_FI_DEV_ECC_SBE_AGG_TOTAL: otherwise = 12; break;
            case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT; break;
        }
        long long value = number("field", name, index, otherwise);
        values[i].nvmlReturn = (nvmlReturn_t)number("fieldret", name, index, 0);
        if (values[i].valueType == NVML_VALUE_TYPE_UNSIGNED_INT) values[i].value.uiVal = (unsigned int)value;
        else values[i].value.ullVal = (unsigned long long)value;
    }
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list) {
    DEVICE("ComputeRunningProcesses")
    unsigned int there = (unsigned int)number("", "pids", index, 1), room = *count;
    *count = there;
    if (there > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < there; i++) {
        list[i].pid = (unsigned int)VALUE("pid", 4242) + i;
        list[i].usedGpuMemory = (unsigned long long)VALUE("ComputeRunningProcesses", 1000000512);
        list[i].gpuInstanceId = list[i].computeInstanceId = 0xFFFFFFFF;
    }
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    DEVICE("MigMode")
    *current = *pending = number("", "mig", index, 0) > 0;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    DEVICE("MaxMigDeviceCount")
    *count = 7;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int wanted, nvmlDevice_t *instance) {
    DEVICE("MigDeviceHandleByIndex")
    /* Every second place is taken. */
    if (wanted % 2 || wanted / 2 >= (unsigned int)number("", "mig", index, 0)) return NVML_ERROR_NOT_FOUND;
    *instance = (nvmlDevice_t)(size_t)((index + 1) * 1000 + (int)wanted + 1);
    return NVML_SUCCESS;
}
#endif
#if !defined OLD && !defined WITHOUT_EVENTS
EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    SYSTEM("EventSetCreate")
    *set = (nvmlEventSet_t)(size_t)1;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    DEVICE("RegisterEvents")
    (void)set;
    return types == nvmlEventTypeXidCriticalError ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
// Between two looks at the folder for an event. A driver does not look at all: a bench that counts CPU looks rarely.
#ifndef EVENT_LOOK_MS
#define EVENT_LOOK_MS 10
#endif
EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout) {
    (void)set;
    for (unsigned int waited = 0;; waited += EVENT_LOOK_MS) {
        while (number("hang", "EventSetWait", -1, 0)) usleep(10000);
        if (number("crash", "EventSetWait", -1, 0)) abort();
        nvmlReturn_t result = (nvmlReturn_t)number("ret", "EventSetWait", -1, 0);
        if (result) return result;
        char name[32];
        snprintf(name, sizeof name, "%lld", delivered + 1);
        long long event = number("xid", name, -1, -1);
        if (event >= 0) {
            delivered++;
            memset(data, 0, sizeof *data);
            data->device = (nvmlDevice_t)(size_t)(event / 100000 + 1);
            data->eventType = nvmlEventTypeXidCriticalError;
            data->eventData = (unsigned long long)(event % 100000);
            return NVML_SUCCESS;
        }
        if (waited >= timeout) return NVML_ERROR_TIMEOUT;
        usleep(EVENT_LOOK_MS * 1000);
    }
}
EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    (void)set;
    return NVML_SUCCESS;
}
#endif
