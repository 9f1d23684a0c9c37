/* What a module image says of its kernels: names, parameters, registers, shared memory.
 *
 * Reads the ELF of real CUBINs (`.text.NAME`, `.nv.info.NAME`, `.nv.shared.NAME`) and the images of the stand-in NVRTC,
 * which are a first line `ELASTICO-CUBIN sm_90` and the source text.
 */
#ifndef ELASTICO_MOCK_IMAGE_H
#define ELASTICO_MOCK_IMAGE_H

#include <ctype.h>
#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_PARAMETERS 64
#define IMAGE_TEXT "ELASTICO-CUBIN sm_"

struct image_kernel {
    char name[128];
    int parameters; /* -1: not known */
    unsigned offsets[IMAGE_PARAMETERS], sizes[IMAGE_PARAMETERS];
    int registers, shared, threads;
    struct image_kernel *next;
};

struct image {
    int architecture; /* 90 for sm_90 */
    struct image_kernel *kernels;
};

static struct image_kernel *image_find(const struct image *image, const char *name) {
    for (struct image_kernel *kernel = image->kernels; kernel; kernel = kernel->next)
        if (!strcmp(kernel->name, name)) return kernel;
    return NULL;
}

static struct image_kernel *image_add(struct image *image, const char *name) {
    struct image_kernel *kernel = calloc(1, sizeof *kernel);
    snprintf(kernel->name, sizeof kernel->name, "%s", name);
    kernel->registers = 32;
    kernel->threads = 1024;
    kernel->next = image->kernels;
    return image->kernels = kernel;
}

/* Entries of `.nv.info.NAME`: format, attribute, 16 bits of size or value, then the value. */
static void image_read_info(struct image_kernel *kernel, const unsigned char *at, uint64_t size) {
    for (uint64_t i = 0; i + 4 <= size;) {
        uint16_t length;
        memcpy(&length, at + i + 2, 2);
        const unsigned char *value = at + i + 4;
        uint32_t words[3] = {0};
        if (at[i] == 4) memcpy(words, value, length < 12 ? length : 12);
        if (at[i] == 4 && at[i + 1] == 0x17) { /* index; ordinal and offset; size in the upper bits */
            uint32_t ordinal = words[1] & 0xffff;
            if (ordinal < IMAGE_PARAMETERS) {
                kernel->offsets[ordinal] = words[1] >> 16;
                kernel->sizes[ordinal] = words[2] >> 18;
                if (kernel->parameters <= (int)ordinal) kernel->parameters = (int)ordinal + 1;
            }
        } else if (at[i] == 4 && at[i + 1] == 0x05) { /* the block size of __launch_bounds__ */
            kernel->threads = (int)(words[0] * (words[1] ? words[1] : 1) * (words[2] ? words[2] : 1));
        }
        i += 4 + (at[i] == 4 ? length : 0);
    }
}

static bool image_read_elf(struct image *image, const unsigned char *data) {
    Elf64_Ehdr header;
    memcpy(&header, data, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != 190) return false;
    image->architecture = (int)(header.e_flags >> 8 & 0xff);
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(data + header.e_shoff);
    const char *names = (const char *)data + sections[header.e_shstrndx].sh_offset;
    for (int i = 0; i < header.e_shnum; i++)
        if (!strncmp(names + sections[i].sh_name, ".text.", 6)) image_add(image, names + sections[i].sh_name + 6);
    for (int i = 0; i < header.e_shnum; i++) {
        const char *name = names + sections[i].sh_name;
        struct image_kernel *kernel;
        if (!strncmp(name, ".nv.info.", 9) && (kernel = image_find(image, name + 9)))
            image_read_info(kernel, data + sections[i].sh_offset, sections[i].sh_size);
        else if (!strncmp(name, ".nv.shared.", 11) && (kernel = image_find(image, name + 11)))
            kernel->shared = (int)sections[i].sh_size;
        else if (!strcmp(name, ".nv.info")) /* registers by symbol: too far for what tests ask */
            continue;
    }
    return true;
}

/* Bytes of one parameter of a declaration such as `const unsigned long long *restrict rows`; cuts its name off. */
static unsigned image_parameter_size(char *text) {
    size_t end = strlen(text);
    while (end && isspace((unsigned char)text[end - 1])) end--;
    while (end && (isalnum((unsigned char)text[end - 1]) || text[end - 1] == '_')) end--;
    if (end) text[end] = 0;
    if (strchr(text, '*') || strstr(text, "long long") || strstr(text, "double") || strstr(text, "size_t") ||
        strstr(text, "64") || strstr(text, "u64"))
        return 8;
    if (strstr(text, "char") || strstr(text, "bool") || strstr(text, "int8")) return 1;
    if (strstr(text, "short") || strstr(text, "int16")) return 2;
    return 4;
}

static void image_read_text(struct image *image, const char *source) {
    for (const char *at = source; (at = strstr(at, "__global__"));) {
        at += 10;
        const char *open = strchr(at, '(');
        /* Before or after the type of the result. */
        while (open && open - at >= 17 && !strncmp(open - 17, "__launch_bounds__", 17)) {
            const char *close = strchr(open, ')');
            if (!close) return;
            at = close + 1;
            open = strchr(at, '(');
        }
        if (!open) return;
        const char *end = open;
        while (end > at && isspace((unsigned char)end[-1])) end--;
        const char *begin = end;
        while (begin > at && (isalnum((unsigned char)begin[-1]) || begin[-1] == '_')) begin--;
        char name[128], parameter[256];
        snprintf(name, sizeof name, "%.*s", (int)(end - begin), begin);
        if (!name[0] || image_find(image, name)) continue;
        struct image_kernel *kernel = image_add(image, name);
        unsigned offset = 0;
        for (const char *p = open + 1; *p && *p != ')';) {
            size_t length = strcspn(p, ",)");
            snprintf(parameter, sizeof parameter, "%.*s", (int)length, p);
            p += length + (p[length] == ',');
            if (strspn(parameter, " \t\n") == strlen(parameter) || kernel->parameters == IMAGE_PARAMETERS) continue;
            unsigned size = image_parameter_size(parameter);
            offset = (offset + size - 1) / size * size;
            kernel->offsets[kernel->parameters] = offset;
            kernel->sizes[kernel->parameters++] = size;
            offset += size;
        }
    }
}

/* Reads an image; false where it is none. */
static bool image_read(struct image *image, const void *data) {
    image->kernels = NULL;
    if (!memcmp(data, ELFMAG, SELFMAG)) return image_read_elf(image, data);
    if (strncmp(data, IMAGE_TEXT, sizeof IMAGE_TEXT - 1)) return false;
    image->architecture = atoi((const char *)data + sizeof IMAGE_TEXT - 1);
    image_read_text(image, data);
    return true;
}

#endif
