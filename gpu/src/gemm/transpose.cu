// Rows to columns for elements of one byte, in tiles of 32 x 32. Block: 32 x 8 threads; grid: columns / 32, rows / 32, batch.
extern "C" __global__ void transpose_bytes(const unsigned char *from, unsigned char *to, unsigned rows, unsigned columns) {
    // One more column keeps the reads by column on different banks.
    __shared__ unsigned char tile[32][33];
    const unsigned long long matrix = (unsigned long long)blockIdx.z * rows * columns;
    unsigned column = blockIdx.x * 32 + threadIdx.x;
    for (unsigned line = threadIdx.y; line < 32; line += 8) {
        const unsigned row = blockIdx.y * 32 + line;
        if (row < rows && column < columns) tile[line][threadIdx.x] = from[matrix + (unsigned long long)row * columns + column];
    }
    __syncthreads();
    const unsigned row = blockIdx.y * 32 + threadIdx.x;
    for (unsigned line = threadIdx.y; line < 32; line += 8) {
        column = blockIdx.x * 32 + line;
        if (row < rows && column < columns) to[matrix + (unsigned long long)column * rows + row] = tile[threadIdx.x][line];
    }
}
