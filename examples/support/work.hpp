#pragma once

// Independent pieces of work, spread over threads, that Ctrl-C ends early with what is finished.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "examples/support/program.hpp"  // Progress

namespace examples {

namespace detail {
inline std::atomic<bool> interrupt_seen{false};
static_assert(std::atomic<bool>::is_always_lock_free, "it is set by a signal handler");
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
    struct sigaction action {};
    action.sa_handler = [](int) { detail::interrupt_seen = true; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);  // unsigned in some libraries
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before_);
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
  std::vector<std::thread> team;
  for (std::size_t t = 1; t < (std::min)(std::size_t{threads}, count); ++t) team.emplace_back(work);
  work();
  for (std::thread& thread : team) thread.join();
  if (failure) std::rethrow_exception(failure);
  return results;
}

}  // namespace examples
