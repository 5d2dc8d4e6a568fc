// Streams of the device in ExecutionMode::kLater: queues of work, each with a thread that runs it in order.
//
// No work needs Python's lock, because `torch.hpu.synchronize` holds it while it waits. No work destroys an object of
// the program, for the same reason.
#pragma once

#include "common.h"

#include <condition_variable>
#include <deque>

#include "execution.h"

namespace hpu_sim {

class Stream;
using StreamPtr = std::shared_ptr<Stream>;

// A position in a stream, reached when all work before it has run. The default one is always reached.
struct StreamEvent {
  StreamPtr stream;
  uint64_t number = 0;

  bool is_reached() const;
};

enum class WorkKind : uint8_t {
  kKernel,  // computes; a fork of the process waits for its end
  kWait,    // waits, for other streams or other ranks
  kCopy,    // a kernel that starts only if other work follows or something waits for it: as late as on a busy card
};

// Counts the forks that led to this process.
inline std::atomic<uint32_t> num_forks{0};

// In a forked child, the streams of the parent have no threads: as on the bridge, their work is never run, what they
// are given is dropped, and joins return at once.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  static StreamPtr create();

  // Appends work. `op` names it in its error, and must outlive it.
  StreamEvent push(const char* op, std::function<void()> work, WorkKind kind = WorkKind::kKernel);

  // Makes later work wait for `event`, and starts what comes before it.
  void wait_for(const StreamEvent& event);

  // Returns the position after all work that was appended.
  StreamEvent record();

  // Starts the work up to `number`.
  void start(uint64_t number);

  // Blocks until `number` is reached, or for at most `limit`. Returns whether it is reached.
  bool wait_until(uint64_t number, std::chrono::milliseconds limit);
  bool has_reached(uint64_t number) const {
    return num_done_.load(std::memory_order_acquire) >= number || is_of_parent();
  }

  // Ends the thread after the last work.
  void close();

 private:
  struct Work {
    const char* op = nullptr;
    std::string line;  // of the program, in strict mode
    std::function<void()> run;
    WorkKind kind = WorkKind::kKernel;
  };

  bool is_of_parent() const { return process_ != num_forks.load(std::memory_order_relaxed); }
  void run();
  void run_work(const Work& work);

  const uint32_t process_ = num_forks;

  std::mutex mutex_;
  std::condition_variable pushed_;
  std::condition_variable reached_;
  std::deque<Work> work_;
  uint64_t num_pushed_ = 0;
  uint64_t num_started_ = 0;
  std::atomic<uint64_t> num_done_{0};
  bool is_closed_ = false;
};

// Returns the stream with an id of guard.h. Its default stream is that of id 0.
StreamPtr stream_of(int64_t id);

// Returns the stream of the calling thread.
StreamPtr current_stream();

// Blocks the calling thread until an event is reached. Releases Python's lock, unless `keeps_gil`.
void wait_on_host(const StreamEvent& event, bool keeps_gil = false);

// Blocks until all streams have run, with Python's lock as it is.
void wait_for_device(bool keeps_gil);

// Lets a copy to the host write its target: when the host has waited, for whatever, after the copy has run.
void land_after(const StreamEvent& event, std::function<void()> write);
void land();

// Runs `function` with Python's lock, which a thread in `torch.hpu.synchronize` then lends. For work.
void run_with_gil(const std::function<void()>& function);

// Is without Python's lock, also if the calling thread has it.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* thread_state_;
};

// Blocks for ever, as work of which another rank has died.
[[noreturn]] void stay_stuck();

// Ends the process at SIGINT, without any of its handlers, as the bridge does.
void exit_at_interrupt();

// Late errors: those of kernels. They reach the program at its next operator, or where the host joins; on a card up to
// three operators later, and so does that there is no memory, which here is an error of the call. The simulator says
// which operator failed, and in strict mode which line launched it; a card cannot.

// Keeps an error of `op`, launched by `line`. The newest replaces an older one.
void keep_error(const char* op, std::exception_ptr error, const std::string& line);

// Returns the line of the program that this thread runs, by a function that knows it.
std::string launching_line();
inline std::atomic<std::string (*)()> locate{nullptr};

inline std::atomic<bool> has_kept_error{false};
void throw_kept_error();

// Whether the host waits for each operator and each copy right after its launch, for HPU_SIM_BLOCKING=1.
inline std::atomic<bool> is_blocking{false};

// Throws the kept error, if any.
inline void join_pipeline() {
  if (C10_UNLIKELY(has_kept_error.load(std::memory_order_relaxed))) {
    throw_kept_error();
  }
}

}  // namespace hpu_sim
