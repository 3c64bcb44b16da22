// The all-reduce of `shoal bench fabric` over gloo's TCP transport: float sums, several in a row
// after a barrier, the median of their means.
//
//     all_reduce_gloo RANK FOLDER ring|bcube ROUNDS BYTES...
//
// Both ranks meet in an empty folder. Rank 0 prints one line per size: bytes, and its median in
// seconds; rounds are as in all_reduce_mpi.c. Built and run by communication.py.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

int rounds_for(size_t bytes, int rounds) {
  if (bytes <= 65536) return rounds;
  return std::max(20, bytes <= (size_t{1} << 20U) ? rounds / 10 : rounds / 50);
}

double median_of(const std::shared_ptr<gloo::Context>& context,
                 gloo::AllreduceOptions::Algorithm algorithm, size_t bytes, int rounds) {
  std::vector<float> data(bytes / sizeof(float));
  std::vector<double> seconds;
  gloo::BarrierOptions barrier(context);
  gloo::AllreduceOptions options(context);
  options.setAlgorithm(algorithm);
  options.setOutput(data.data(), data.size());
  options.setReduceFunction(
      [](void* out, const void* a, const void* b, size_t n) { gloo::sum<float>(out, a, b, n); });
  const int in_a_row = bytes <= 65536 ? 32 : 8;
  for (int i = -1; i < std::max(3, rounds / in_a_row); ++i) {  // the first batch warms up
    std::fill(data.begin(), data.end(), 1.0F);
    gloo::barrier(barrier);
    const auto start = std::chrono::steady_clock::now();
    for (int j = 0; j < in_a_row; ++j) gloo::allreduce(options);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i >= 0) seconds.push_back(took.count() / in_a_row);
    if (data.back() != static_cast<float>(1ULL << static_cast<unsigned>(in_a_row))) std::abort();
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const int rank = std::atoi(argv[1]);
  gloo::transport::tcp::attr attributes;
  attributes.iface = "lo";
  const auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(argv[2]);
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
  context->connectFullMesh(store, const_cast<std::shared_ptr<gloo::transport::Device>&>(device));
  const auto algorithm = std::string(argv[3]) == "ring" ? gloo::AllreduceOptions::Algorithm::RING
                                                        : gloo::AllreduceOptions::Algorithm::BCUBE;
  for (int i = 5; i < argc; ++i) {
    const size_t bytes = std::strtoull(argv[i], nullptr, 10);
    const double median =
        median_of(context, algorithm, bytes, rounds_for(bytes, std::atoi(argv[4])));
    if (rank == 0) std::printf("%zu %.9f\n", bytes, median);
  }
  return 0;
}
