// Runs launch plans on a CPU: the kernels as host code (libhost_kernels.so), products in double precision.
//
// usage: runner LIBRARY < jobs. A job is lines, numbers in decimal, floats as their bits:
//   buffer BYTES PATH          contents are read from PATH and written back at the end
//   kernel NAME gx gy gz bx by bz shared COUNT [b INDEX OFFSET | 4 BITS | 8 BITS]...
//   gemm m n k batch FORMAT ta tb a ao b bo c co
//   copy FROM TO BYTES
//   end
// The end of each buffer lies on a page that cannot be touched.
#include "host_kernels.hpp"

#include "common.cuh"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <sys/mman.h>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;
const unsigned long long* host_exchange(unsigned, unsigned long long) { abort(); }
void __syncthreads() { abort(); }
void host_sleep(unsigned long long) {}
unsigned long long host_nanoseconds() { return 0; }

static void fail(const char* what, const char* detail) {
    fprintf(stderr, "runner: %s %s\n", what, detail);
    exit(1);
}

struct Buffer {
    unsigned char* at;
    size_t bytes;
    std::string path;
};

static Buffer open_buffer(size_t bytes, const std::string& path) {
    const size_t page = 4096, pages = (bytes + page - 1) / page * page;
    unsigned char* all = (unsigned char*)mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || mprotect(all + pages, page, PROT_NONE)) fail("no memory for", path.c_str());
    Buffer buffer = {all + pages - bytes, bytes, path};
    FILE* file = fopen(path.c_str(), "rb");
    if (!file || fread(buffer.at, 1, bytes, file) != bytes) fail("cannot read", path.c_str());
    fclose(file);
    return buffer;
}

static void close_buffer(const Buffer& buffer) {
    FILE* file = fopen(buffer.path.c_str(), "wb");
    if (!file || fwrite(buffer.at, 1, buffer.bytes, file) != buffer.bytes) fail("cannot write", buffer.path.c_str());
    fclose(file);
    const size_t page = 4096, pages = (buffer.bytes + page - 1) / page * page;
    munmap(buffer.at + buffer.bytes - pages, pages + page);
}

struct Product {
    size_t m, n, k, batch;
    bool ta, tb;
};

template <class T, class Out>
static void multiply(const Product& p, const T* a, const T* b, Out* c, double (*read)(T), Out (*write)(double)) {
    for (size_t batch = 0; batch < p.batch; ++batch, a += p.m * p.k, b += p.k * p.n, c += p.m * p.n)
        for (size_t i = 0; i < p.m; ++i)
            for (size_t j = 0; j < p.n; ++j) {
                double sum = 0;
                for (size_t l = 0; l < p.k; ++l)
                    sum += read(p.ta ? a[l * p.m + i] : a[i * p.k + l]) * read(p.tb ? b[j * p.k + l] : b[l * p.n + j]);
                c[i * p.n + j] = write(sum);
            }
}

template <class T>
static double read_as(T value) { return to_float(value); }
template <class T>
static T write_as(double value) { return from_float<T>((float)value); }

int main(int, char** arguments) {
    void* library = dlopen(arguments[1], RTLD_NOW);
    if (!library) fail("cannot open the kernels:", dlerror());
    auto find = (const host_kernel* (*)(const char*))dlsym(library, "elastico_host_kernel");
    if (!find) fail("no kernels in", arguments[1]);
    std::vector<Buffer> buffers;
    char word[4096];
    while (scanf("%4095s", word) == 1) {
        const std::string what = word;
        if (what == "buffer") {
            size_t bytes;
            if (scanf("%zu %4095s", &bytes, word) != 2) fail("bad line", "buffer");
            buffers.push_back(open_buffer(bytes, word));
        } else if (what == "kernel") {
            unsigned grid[3], block[3], shared, count;
            if (scanf("%4095s %u %u %u %u %u %u %u %u", word, grid, grid + 1, grid + 2, block, block + 1, block + 2, &shared, &count) != 9)
                fail("bad line", "kernel");
            const std::string name = word;
            std::vector<unsigned long long> values(count);
            std::vector<unsigned> sizes;
            for (auto& value : values) {
                if (scanf("%4095s", word) != 1) fail("bad argument of", name.c_str());
                if (word[0] == 'b') {
                    size_t index, offset;
                    if (scanf("%zu %zu", &index, &offset) != 2) fail("bad argument of", name.c_str());
                    value = (unsigned long long)(buffers.at(index).at + offset);
                    sizes.push_back(8);
                } else {
                    if (scanf("%llu", &value) != 1) fail("bad argument of", name.c_str());
                    sizes.push_back((unsigned)(word[0] - '0'));
                }
            }
            const host_kernel* kernel = find(name.c_str());
            if (!kernel) fail("no kernel", name.c_str());
            if (kernel->parameters != (int)count) fail("wrong number of arguments of", name.c_str());
            std::vector<void*> pointers;
            for (unsigned i = 0; i < count; ++i) {
                if (kernel->sizes[i] != sizes[i]) fail("an argument of the wrong size of", name.c_str());
                pointers.push_back(&values[i]);
            }
            kernel->run(grid, block, shared, pointers.data());
        } else if (what == "gemm") {
            Product p;
            int ta, tb;
            size_t a, ao, b, bo, c, co;
            if (scanf("%zu %zu %zu %zu %4095s %d %d %zu %zu %zu %zu %zu %zu", &p.m, &p.n, &p.k, &p.batch, word, &ta, &tb, &a, &ao, &b, &bo, &c, &co) != 13)
                fail("bad line", "gemm");
            p.ta = ta, p.tb = tb;
            const std::string format = word;
            void *x = buffers.at(a).at + ao, *y = buffers.at(b).at + bo, *z = buffers.at(c).at + co;
            if (format == "fp32" || format == "tf32") multiply<fp32, fp32>(p, (fp32*)x, (fp32*)y, (fp32*)z, read_as<fp32>, write_as<fp32>);
            else if (format == "fp16") multiply<fp16, fp16>(p, (fp16*)x, (fp16*)y, (fp16*)z, read_as<fp16>, write_as<fp16>);
            else if (format == "bf16") multiply<bf16, bf16>(p, (bf16*)x, (bf16*)y, (bf16*)z, read_as<bf16>, write_as<bf16>);
            else if (format == "fp8") multiply<fp8, fp8>(p, (fp8*)x, (fp8*)y, (fp8*)z, read_as<fp8>, write_as<fp8>);
            else if (format == "int8")
                multiply<signed char, int>(p, (signed char*)x, (signed char*)y, (int*)z, [](signed char v) { return (double)v; }, [](double v) { return (int)v; });
            else fail("no format", format.c_str());
        } else if (what == "copy") {
            size_t from, to, bytes;
            if (scanf("%zu %zu %zu", &from, &to, &bytes) != 3) fail("bad line", "copy");
            memcpy(buffers.at(to).at, buffers.at(from).at, bytes);
        } else if (what == "end") {
            for (const auto& buffer : buffers) close_buffer(buffer);
            buffers.clear();
        } else {
            fail("unknown word", word);
        }
    }
    return 0;
}
