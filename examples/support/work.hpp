#pragma once

// Independent pieces of work, spread over threads, that Ctrl-C ends early with what is finished.

#include <time.h>  // clock_gettime

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "examples/support/program.hpp"  // Progress

namespace examples {

namespace detail {

inline std::atomic<bool> interrupt_seen{false};
inline std::atomic<std::int64_t> interrupt_time{0};  // in milliseconds
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free,
              "they are set by a signal handler");

/// Notes the first interrupt. Another one, but for an echo of the first, ends the program as usual.
inline void on_interrupt(int) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t time = std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  if (!interrupt_seen.exchange(true)) {
    interrupt_time = time;
  } else if (time - interrupt_time > 300) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}

}  // namespace detail

/// Whether Ctrl-C was pressed during run_tasks.
inline bool interrupted() { return detail::interrupt_seen; }

/// What a task throws to say that it gave up because of an interrupt.
struct Interrupted {};

/// Within a long task, now and then.
inline void give_up_if_interrupted() {
  if (interrupted()) throw Interrupted{};
}

/// While one lives, a first Ctrl-C is noted and a second ends the program as usual.
class InterruptGuard {
 public:
  InterruptGuard() {
    sigaction(SIGINT, nullptr, &before_);
    if (before_.sa_handler == SIG_IGN) return;  // as under nohup
    struct sigaction action {};
    action.sa_handler = detail::on_interrupt;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
  }
  ~InterruptGuard() { sigaction(SIGINT, &before_, nullptr); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_ {};
};

/// The results of task(0), ..., task(count - 1), begun in this order on `threads` threads. A task that an interrupt kept
/// from finishing has none. What a task throws otherwise is thrown on, once all threads have stopped.
///
/// A result depends on the task's number alone, so all are the same for any number of threads.
template <class Task>
auto run_tasks(std::size_t count, unsigned threads, bool quiet, const Task& task) {
  using Result = std::invoke_result_t<const Task&, std::size_t>;
  std::vector<std::optional<Result>> results(count);
  const InterruptGuard guard;
  Progress progress(quiet);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};
  std::exception_ptr failure;
  std::mutex mutex;  // of progress, done and failure
  std::size_t done = 0;

  const auto work = [&] {
    for (std::size_t i = next++; i < count && !stop && !interrupted(); i = next++) {
      try {
        results[i].emplace(task(i));
        const std::lock_guard lock(mutex);
        progress.show(++done, count);
      } catch (const Interrupted&) {
        return;
      } catch (...) {
        stop = true;
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  progress.show(0, count);
  std::vector<std::thread> team;
  try {
    for (std::size_t t = 1; t < (std::min)(std::size_t{threads}, count); ++t) team.emplace_back(work);
  } catch (const std::system_error&) {
    // Fewer threads than asked for do the same work.
  }
  work();
  for (std::thread& thread : team) thread.join();
  if (failure) std::rethrow_exception(failure);
  return results;
}

}  // namespace examples
