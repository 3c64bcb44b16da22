#include "tensor/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace shoal::tensor {
namespace {

std::unique_ptr<WorkerPool> make_pool(int workers) {
  return std::move(WorkerPool::create({.workers = workers})).value();
}

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(WorkerPool, AStepRunsOnceOnEveryWorker) {
  for (const int workers : {1, 2, 3, 5}) {
    auto pool = make_pool(workers);
    std::vector<std::atomic<int>> runs(static_cast<size_t>(workers));
    for (int step = 1; step <= 100; ++step) {
      pool->run([&](Worker& me) {
        EXPECT_EQ(me.count(), workers);
        runs[static_cast<size_t>(me.index())].fetch_add(1);
      });
      for (const auto& count : runs) ASSERT_EQ(count.load(), step);
    }
  }
}

TEST(WorkerPool, TheCallerIsWorkerZero) {
  auto pool = make_pool(3);
  const auto caller = std::this_thread::get_id();
  pool->run([&](Worker& me) { EXPECT_EQ(me.is_first(), std::this_thread::get_id() == caller); });
}

// Plain memory on purpose: a thread sanitizer proves that barriers order it.
TEST(WorkerPool, WhatIsWrittenBeforeABarrierIsSeenAfterIt) {
  for (const int workers : {2, 4}) {
    auto pool = make_pool(workers);
    std::vector<int> values(static_cast<size_t>(workers));
    pool->run([&](Worker& me) {
      for (int round = 1; round <= 200; ++round) {
        values[static_cast<size_t>(me.index())] = round;
        me.barrier();
        for (const int value : values) EXPECT_EQ(value, round);
        me.barrier();
      }
    });
  }
}

TEST(WorkerPool, SharesCoverAllItemsOnceAndKeepTheGrain) {
  for (const int workers : {1, 3, 4}) {
    auto pool = make_pool(workers);
    for (const int64_t items : {0, 1, 7, 64, 1000}) {
      for (const int64_t grain : {1, 16}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(items));
        pool->run([&](Worker& me) {
          const Range mine = me.share(items, grain);
          EXPECT_TRUE(mine.size() == 0 || mine.begin % grain == 0);
          for (int64_t i = mine.begin; i < mine.end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
        });
        for (const auto& count : seen) ASSERT_EQ(count.load(), 1);
      }
    }
  }
}

TEST(WorkerPool, AnIdlePoolUsesNoProcessorTime) {
  auto pool = make_pool(4);
  pool->run([](Worker& me) { me.barrier(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu_seconds() - before, 0.02);
}

TEST(WorkerPool, SleepingWorkersWakeForTheNextStep) {
  auto pool = make_pool(3);
  for (int step = 0; step < 20; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(step % 3));
    std::atomic<int> runs{0};
    pool->run([&](Worker&) { runs.fetch_add(1); });
    ASSERT_EQ(runs.load(), 3);
  }
}

TEST(WorkerPool, ScratchIsEachWorkersOwnAndGrows) {
  auto pool = make_pool(2);
  ASSERT_TRUE(pool->reserve_scratch(100).is_ok());
  ASSERT_TRUE(pool->reserve_scratch(5000).is_ok());
  ASSERT_TRUE(pool->reserve_scratch(10).is_ok());
  std::vector<std::byte*> starts(2);
  pool->run([&](Worker& me) {
    EXPECT_GE(me.scratch().size(), 5000U);
    starts[static_cast<size_t>(me.index())] = me.scratch().data();
    me.scratch()[4999] = std::byte{1};
  });
  EXPECT_NE(starts[0], starts[1]);
}

TEST(WorkerPool, BadCountsAreRefused) {
  for (const int workers : {0, -1, WorkerPool::kWorkersMax + 1}) {
    const auto pool = WorkerPool::create({.workers = workers});
    ASSERT_FALSE(pool.is_ok());
    EXPECT_EQ(pool.status().code(), StatusCode::kRequest);
  }
}

TEST(WorkerPool, AKernelPathWithoutItsProcessorIsRefused) {
  for (const KernelPath path : all_kernel_paths()) {
    EXPECT_EQ(WorkerPool::create({.workers = 1, .path = path}).is_ok(),
              kernel_path_runs_here(path));
    EXPECT_EQ(kernel_path_from_name(kernel_path_name(path)), path);
  }
  EXPECT_FALSE(kernel_path_from_name("mmx").has_value());
  EXPECT_NE(best_kernel_path(), KernelPath::kExact);
}

}  // namespace
}  // namespace shoal::tensor
