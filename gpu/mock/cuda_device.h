/* Part of cuda.c: opening the driver, which devices a process sees, and what they are. */

static int capability(int part) {
    char line[64];
    int major = 9, minor = 0;
    mock_need_script();
    if (mock_line("compute_capability", 0, line, sizeof line)) sscanf(line, "%d %d", &major, &minor);
    return part ? minor : major;
}

static void see(int index, const struct mock_mig *instance, int place) {
    if (device_count == BOARD_DEVICES || place >= BOARD_DEVICES) return;
    struct device *device = &devices[device_count++];
    device->index = index;
    device->place = place;
    device->mig = instance != NULL;
    if (instance) device->instance = *instance;
    device->multiprocessors = instance ? instance->multiprocessors : (int)mock_number("multiprocessors", 132);
    device->memory = instance ? instance->memory : mock_number("memory", 144e9);
}

/* A device by its first MIG instance where it has any, as the driver does without CUDA_VISIBLE_DEVICES. */
static void see_index(int index, int machine) {
    struct mock_mig instance;
    for (int i = 0; mock_mig(i, &instance); i++)
        if (instance.device == index) {
            see(index, &instance, machine + i);
            return;
        }
    see(index, NULL, index);
}

static bool see_word(const char *word, int machine) {
    char text[48];
    unsigned char bytes[16];
    struct mock_mig instance;
    if (!strncmp(word, "MIG-", 4)) {
        for (int i = 0; mock_mig(i, &instance); i++)
            if (!strcmp(word, instance.uuid)) {
                see(instance.device, &instance, machine + i);
                return true;
            }
        return false;
    }
    for (int i = 0; i < machine; i++) {
        mock_uuid(i, bytes, text);
        char *end;
        if (!strncmp(word, "GPU-", 4) ? !strncmp(word, text, strlen(word)) : strtol(word, &end, 10) == i && end != word) {
            see_index(i, machine);
            return true;
        }
    }
    return false;
}

static void see_all(void) {
    int machine = (int)mock_number("devices", 1);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    device_count = 0;
    if (!visible) {
        for (int i = 0; i < machine; i++) see_index(i, machine);
        return;
    }
    char copy[1024], *state = NULL;
    snprintf(copy, sizeof copy, "%s", visible);
    for (char *word = strtok_r(copy, ",", &state); word && see_word(word, machine);) word = strtok_r(NULL, ",", &state);
}

static bool mps_daemon_is_there(void) {
    char path[4096];
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    if (!folder) folder = "/tmp/nvidia-mps";
    snprintf(path, sizeof path, "%s/control", folder);
    if (access(path, F_OK)) return false;
    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", folder);
    FILE *file = fopen(path, "r");
    int process = 0;
    bool written = file && fscanf(file, "%d", &process) == 1;
    if (file) fclose(file);
    return !written || process_started(process) != 0;
}

/* Makes this process known to the stand-in daemon. */
static void mps_join(void) {
    char path[4096];
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(path, sizeof path, "%s/clients", folder ? folder : "/tmp/nvidia-mps");
    FILE *file = fopen(path, "a");
    if (!file) return;
    fprintf(file, "%d\n", getpid());
    fclose(file);
}

/* SMs under the MPS limit: whole pairs, since two SMs make one TPC. */
static int limited(int multiprocessors) {
    const char *text = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    double percent = text ? atof(text) : 100;
    if (!mps_enabled || mock_flag("ignore_percentage") || percent <= 0 || percent >= 100) return multiprocessors;
    int count = (int)rounded_up(multiprocessors * percent / 100);
    count = (count + 1) & ~1;
    return count < multiprocessors ? count : multiprocessors;
}

static void inject(void) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (!path || !*path) return;
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "stand-in libcuda: cannot load %s: %s\n", path, dlerror());
        return;
    }
    int (*initialize)(void) = (int (*)(void))dlsym(library, "InitializeInjection");
    if (initialize) initialize();
}

API(cuInit)(unsigned flags) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    if (flags) return INVALID_VALUE;
    if (device_count >= 0) return initialized_process == getpid() ? 0 : NOT_INITIALIZED;
    int code = mock_fault("cuInit");
    if (code == MOCK_HANG) for (;;) pause();
    if (!code) code = (int)mock_number("init_result", INIT_RESULT);
    if (code) return code;
    pthread_mutex_lock(&once);
    bool first = device_count < 0;
    if (first) {
        mock_sleep((uint64_t)(1e6 * mock_number("init_milliseconds", 0)));
        functional = mock_flag("functional");
        mps_enabled = !mock_flag("mps_disabled") && mps_daemon_is_there();
        if (mps_enabled) mps_join();
        see_all();
        initialized_process = getpid();
        int all = device_count ? devices[0].multiprocessors : 1;
        if (!device_count || !board_join((double)limited(all) / all)) {
            code = device_count ? 999 : NO_DEVICE;
            device_count = -1;
        }
    }
    pthread_mutex_unlock(&once);
    if (first && !code) inject();
    return code;
}

API(cuDriverGetVersion)(int *version) {
    int code = mock_fault("cuDriverGetVersion");
    if (code) return code;
    *version = (int)mock_number("driver_version", 13000);
    return 0;
}

API(cuDeviceGetCount)(int *count) {
    BEGIN(cuDeviceGetCount, ANY);
    *count = device_count;
    return 0;
}

API(cuDeviceGet)(int *device, int ordinal) {
    BEGIN(cuDeviceGet, ANY);
    REQUIRE(ordinal >= 0 && ordinal < device_count, INVALID_DEVICE);
    *device = ordinal;
    return 0;
}

API(cuDeviceGetName)(char *name, int length, int device) {
    char text[256] = "Stand-in H200", whole[320];
    BEGIN(cuDeviceGetName, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    REQUIRE(name && length > 0, INVALID_VALUE);
    mock_line("name", 0, text, sizeof text);
    snprintf(whole, sizeof whole, "%s%s%s", text, devices[device].mig ? " MIG " : "", devices[device].mig ? devices[device].instance.profile : "");
    snprintf(name, (size_t)length, "%s", whole);
    return 0;
}

API(cuDeviceTotalMem_v2)(size_t *bytes, int device) {
    BEGIN(cuDeviceTotalMem, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    *bytes = (size_t)devices[device].memory;
    return 0;
}

API(cuDeviceGetUuid_v2)(unsigned char *uuid, int device) {
    char text[48];
    BEGIN(cuDeviceGetUuid, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    mock_uuid(devices[device].index, uuid, text);
    if (devices[device].mig) { /* the sixteen bytes that its text names */
        int at = 0;
        for (const char *p = devices[device].instance.uuid + 4; *p && at < 16; p++) {
            unsigned value;
            if (*p != '-' && sscanf(p, "%2x", &value) == 1) uuid[at++] = (unsigned char)value, p++;
        }
    }
    return 0;
}

API(cuDeviceGetUuid)(unsigned char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

API(cuDeviceGetPCIBusId)(char *text, int length, int device) {
    BEGIN(cuDeviceGetPCIBusId, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    snprintf(text, (size_t)length, "0000:%02X:00.0", 0x17 + devices[device].index);
    return 0;
}

API(cuDeviceGetAttribute)(int *value, int attribute, int device) {
    BEGIN(cuDeviceGetAttribute, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    int major = capability(0), big = major >= 9 ? 232448 : major == 8 && !capability(1) ? 166912 : major == 8 ? 101376 : 65536;
    switch (attribute) {
        case 1: case 2: case 3: *value = 1024; break;        /* threads per block, x, y */
        case 4: *value = 64; break;
        case 5: *value = 2147483647; break;                   /* grid */
        case 6: case 7: *value = 65535; break;
        case 8: *value = 49152; break;                        /* shared memory per block */
        case 9: *value = 65536; break;
        case 10: *value = 32; break;                          /* warp */
        case 12: case 82: *value = 65536; break;              /* registers */
        case 13: *value = 1980000; break;                     /* clock, kHz */
        case 16: *value = limited(devices[device].multiprocessors); break;
        case 20: *value = (int)mock_number("compute_mode", 0); break;
        case 31: case 41: case 78: case 79: case 80: case 83: case 90: case 95: case 102: case 115: *value = 1; break;
        case 32: *value = 1; break;                           /* ECC */
        case 33: *value = 0x17 + devices[device].index; break;
        case 36: *value = 2619000; break;
        case 37: *value = 6144; break;
        case 38: *value = major >= 10 ? 132120576 : major == 9 ? 62914560 : 41943040; break; /* L2 */
        case 39: *value = 2048; break;
        case 40: *value = 3; break;
        case 75: *value = major; break;
        case 76: *value = capability(1); break;
        case 81: *value = big + 1024; break;
        case 97: *value = big; break;
        case 106: *value = 32; break;
        case 111: *value = 1024; break;
        case 120: *value = major >= 9; break;
        case 133: *value = mps_enabled; break;
        default: *value = 0;
    }
    return 0;
}
