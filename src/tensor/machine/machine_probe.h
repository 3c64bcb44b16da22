// MachineProbe: what this machine's memory and arithmetic can do at most, measured.
//
// Benchmarks print kernels as a share of these limits. Each probe takes some tenths of a second on
// every worker of the pool, and gives the best of several passes.
// Thread rule: outside a step, one probe at a time.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/threads.h"

namespace shoal::tensor {

struct ReadBandwidth {
  double bytes_per_second = 0;  // of all workers together, the best of several passes
};

// Streams over `bytes_per_worker` of memory, which should be far larger than the caches. kNode
// without memory.
Result<ReadBandwidth> measure_read_bandwidth(WorkerPool& pool, size_t bytes_per_worker);

// Float32 operations per second of all workers together, multiply and add counted as two, with
// every operand in a register: the peak of the pool's kernel path (kExact: of plain C++).
double measure_float_peak(WorkerPool& pool);

// Operations per second of all workers together in a matrix product of the shape of a prefill, with
// weights of a supported type that stay in each core's second-level cache: what the pool's kernels
// reach when memory does not hold them back. kNode without memory.
Result<double> measure_matmul_peak(WorkerPool& pool, DType type);

}  // namespace shoal::tensor
