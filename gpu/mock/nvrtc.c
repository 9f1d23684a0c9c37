/* A stand-in for libnvrtc.so.13, for machines without the wheel. Its "CUBIN" is a line `ELASTICO-CUBIN sm_90` and the
 * source, preprocessed where there is a C++ compiler; image.h reads it back. Nothing is compiled: the only errors are those
 * of the script.
 *
 * Keys of the script, beside those of script.h:
 *
 *   nvrtc_version 13 0
 *   nvrtc_error <file> <line> <message>   that file does not compile, with this in its log
 */
#define _GNU_SOURCE
#include "script.h"
#include <sys/wait.h>

enum { INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6 };

static const int architectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

struct program {
    char *source, *name, *log, *image;
    size_t size;
};

#define FAULT(call)                     \
    do {                                \
        int code_ = mock_fault(#call);  \
        if (code_ > 0) return code_;    \
    } while (0)

API(nvrtcVersion)(int *major, int *minor) {
    char line[64];
    FAULT(nvrtcVersion);
    *major = 13;
    *minor = 0;
    mock_need_script();
    if (mock_line("nvrtc_version", 0, line, sizeof line)) sscanf(line, "%d %d", major, minor);
    return 0;
}

API(nvrtcGetNumSupportedArchs)(int *count) {
    FAULT(nvrtcGetNumSupportedArchs);
    *count = ARCHITECTURES;
    return 0;
}

API(nvrtcGetSupportedArchs)(int *numbers) {
    FAULT(nvrtcGetSupportedArchs);
    memcpy(numbers, architectures, sizeof architectures);
    return 0;
}

API(nvrtcCreateProgram)(struct program **program, const char *source, const char *name, int headers, const char *const *texts,
                        const char *const *names) {
    (void)headers, (void)texts, (void)names;
    FAULT(nvrtcCreateProgram);
    if (!program || !source) return INVALID_INPUT;
    *program = calloc(1, sizeof **program);
    (*program)->source = strdup(source);
    (*program)->name = strdup(name ? name : "default_program");
    (*program)->log = strdup("");
    return 0;
}

API(nvrtcDestroyProgram)(struct program **program) {
    if (!program || !*program) return INVALID_PROGRAM;
    free((*program)->source);
    free((*program)->name);
    free((*program)->log);
    free((*program)->image);
    free(*program);
    *program = NULL;
    return 0;
}

/* The source with its macros replaced, or as it is. */
static char *preprocessed(const char *source, int architecture) {
    char path[] = "/tmp/nvrtc-XXXXXX", command[256];
    int file = mkstemp(path);
    if (file < 0) return strdup(source);
    bool written = write(file, source, strlen(source)) == (ssize_t)strlen(source);
    close(file);
    snprintf(command, sizeof command, "${CXX:-c++} -E -P -w -x c++ -std=c++17 -D__CUDA_ARCH__=%d0 %s 2>/dev/null", architecture, path);
    FILE *output = written ? popen(command, "r") : NULL;
    size_t size = 0, room = 1 << 16;
    char *text = malloc(room);
    for (size_t more; output && (more = fread(text + size, 1, room - size - 1, output)) > 0;) {
        size += more;
        if (room - size < 4096) text = realloc(text, room *= 2);
    }
    text[size] = 0;
    bool good = output && pclose(output) == 0 && size;
    unlink(path);
    if (good) return text;
    free(text);
    return strdup(source);
}

static int fail(struct program *program, int code, const char *file, int line, const char *message) {
    free(program->log);
    if (asprintf(&program->log, "%s(%d): error: %s\n\n1 error detected in the compilation of \"%s\".\n", file, line, message, file) < 0)
        program->log = strdup("");
    return code;
}

API(nvrtcCompileProgram)(struct program *program, int count, const char *const *options) {
    char line[512], file[128];
    int architecture = 75, at = 0, used = 0, code = mock_fault("nvrtcCompileProgram");
    if (!program) return INVALID_PROGRAM;
    if (code > 0) return fail(program, code, program->name, 1, "as scripted");
    for (int i = 0; i < count; i++) {
        const char *equals = strchr(options[i], '=');
        if (strncmp(options[i], "--gpu-architecture=", 19) && strncmp(options[i], "-arch=", 6)) continue;
        if (sscanf(equals + 1, "sm_%d", &architecture) != 1 && sscanf(equals + 1, "compute_%d", &architecture) != 1)
            return INVALID_OPTION;
    }
    for (int i = 0; mock_line("nvrtc_error", i, line, sizeof line); i++)
        if (sscanf(line, "%127s %d %n", file, &at, &used) >= 2 && !strcmp(file, program->name))
            return fail(program, COMPILATION, file, at, line + used);
    char *text = preprocessed(program->source, architecture);
    free(program->image);
    int size = asprintf(&program->image, "ELASTICO-CUBIN sm_%d\n%s", architecture, text);
    free(text);
    if (size < 0) return 1;
    program->size = (size_t)size; /* text: who loads it closes it with a zero */
    return 0;
}

API(nvrtcGetCUBINSize)(struct program *program, size_t *size) {
    FAULT(nvrtcGetCUBINSize);
    if (!program || !program->image) return INVALID_PROGRAM;
    *size = program->size;
    return 0;
}

API(nvrtcGetCUBIN)(struct program *program, char *image) {
    FAULT(nvrtcGetCUBIN);
    if (!program || !program->image) return INVALID_PROGRAM;
    memcpy(image, program->image, program->size);
    return 0;
}

API(nvrtcGetProgramLogSize)(struct program *program, size_t *size) {
    if (!program) return INVALID_PROGRAM;
    *size = strlen(program->log) + 1;
    return 0;
}

API(nvrtcGetProgramLog)(struct program *program, char *log) {
    if (!program) return INVALID_PROGRAM;
    strcpy(log, program->log);
    return 0;
}

EXPORT(const char *, nvrtcGetErrorString)(int code) {
    return code == 0 ? "NVRTC_SUCCESS" : code == COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}
