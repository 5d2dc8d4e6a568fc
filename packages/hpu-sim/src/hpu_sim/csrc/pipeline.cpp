#include "pipeline.h"

#include <utility>

#include <c10/util/Exception.h>

#include "diagnostics.h"
#include "graph.h"

namespace hpu_sim {
namespace {

// From execution to compilation, to lowering, to the calling thread.
constexpr int kStages = 3;

std::atomic<std::string (*)()> locator{nullptr};

void describe_launch(c10::Error& error, const std::string& op) {
  const auto locate = locator.load();
  const std::string line = locate == nullptr ? "" : locate();
  error.add_context(
      c10::str(
          "raised late: the operator that failed is ", op, line.empty() ? "" : ", launched at ", line, " (simulated)"));
}

}  // namespace

bool Pipeline::is_on() {
  return is_async() && !graph_recorder().lazy();
}

void Pipeline::fail(const std::string& op, std::exception_ptr error) {
  std::string message;
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& caught) {
    message = caught.what_without_backtrace();
    describe_launch(caught, op);
    error = std::current_exception();
  }
  if (is_observed()) {
    notify({"late_error", op, message});
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  error_ = std::move(error);
  stages_left_ = kStages;
  has_error_ = true;
}

bool Pipeline::advance() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_ == nullptr || --stages_left_ > 0) {
      return error_ != nullptr;
    }
  }
  throw_error();
  return false;
}

void Pipeline::throw_error() {
  std::exception_ptr error;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    error = std::exchange(error_, nullptr);
    has_error_ = false;
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

Pipeline& pipeline() {
  static auto* instance = new Pipeline();
  return *instance;
}

void set_locator(std::string (*locate)()) {
  locator = locate;
}

}  // namespace hpu_sim
