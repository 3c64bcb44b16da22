/* The all-reduce of `shoal bench fabric` over MPI: float sums, several in a row after a barrier,
 * the median of their means.
 *
 *     mpirun -n 2 all_reduce_mpi ROUNDS BYTES...
 *
 * Prints one line per size: bytes, and rank 0's median in seconds. Sizes above 64 KiB get a tenth
 * of the rounds, those above 1 MiB a fiftieth, as there. Built and run by communication.py. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

static int rounds_for(size_t bytes, int rounds) {
  if (bytes <= 65536) return rounds;
  const int fewer = bytes <= ((size_t)1 << 20) ? rounds / 10 : rounds / 50;
  return fewer < 20 ? 20 : fewer;
}

static double median_of(size_t bytes, int rounds) {
  const int count = (int)(bytes / sizeof(float));
  const int in_a_row = bytes <= 65536 ? 32 : 8;
  const int batches = rounds / in_a_row < 3 ? 3 : rounds / in_a_row;
  float* data = malloc(bytes);
  double* seconds = malloc(sizeof(double) * (size_t)batches);
  if (data == NULL || seconds == NULL) abort();
  for (int i = -1; i < batches; ++i) { /* the first batch warms up */
    for (int j = 0; j < count; ++j) data[j] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int j = 0; j < in_a_row; ++j) {
      MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (i >= 0) seconds[i] = (MPI_Wtime() - start) / in_a_row;
    if (data[count - 1] != (float)(1ULL << in_a_row)) abort();
  }
  qsort(seconds, (size_t)batches, sizeof(double), by_size);
  const double median = seconds[batches / 2];
  free(data);
  free(seconds);
  return median;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 2; i < argc; ++i) {
    const size_t bytes = strtoull(argv[i], NULL, 10);
    const double median = median_of(bytes, rounds_for(bytes, atoi(argv[1])));
    if (rank == 0) printf("%zu %.9f\n", bytes, median);
  }
  MPI_Finalize();
  return 0;
}
