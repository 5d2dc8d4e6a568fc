// Python bindings, typed by `hpu_sim.device.native`.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "allocator.h"
#include "autocast.h"
#include "autograd_threads.h"
#include "cpu_placement.h"
#include "dtypes.h"
#include "events.h"
#include "execution.h"
#include "generator.h"
#include "graph.h"
#include "guard.h"
#include "hccl.h"
#include "ivalue_tensors.h"
#include "planning.h"
#include "stream.h"
#include "strict.h"

namespace py = pybind11;

namespace {

// Never destroyed: the interpreter may be gone before the destructor runs.
py::function* const listener_function = new py::function();
py::function* acquire_function = new py::function();
py::function* locator_function = new py::function();
py::function* host_function = new py::function();

// Calls a function of Python from any thread.
template <typename Result, py::function** kFunction>
Result call_function() {
  const py::gil_scoped_acquire gil;
  return (**kFunction)().template cast<Result>();
}

// Tensors of their own, which share storages: a Python object of a tensor would change who may reuse its memory.
py::tuple as_recorded(const torch::jit::Stack& values) {
  py::tuple result(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    c10::IValue value = values[i].isGenerator() ? c10::IValue() : values[i];
    hpu_sim::replace_tensors(value, [](const at::Tensor& tensor) {
      return tensor.defined() ? at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
                                    c10::VariableVersion(0), /*allow_tensor_metadata_change=*/false))
                              : tensor;
    });
    result[i] = torch::jit::toPyObject(std::move(value));
  }
  return result;
}

void call_listener_function(const hpu_sim::Event& event) {
  const py::gil_scoped_acquire gil;
  const auto op = event.op == nullptr ? c10::OperatorName("", "") : event.op->operator_name();
  const auto operator_name = py::make_tuple(op.name, op.overload_name);
  const auto arguments = as_recorded(event.arguments);
  const auto results = as_recorded(event.results);
  try {
    (*listener_function)(event.kind, event.name, event.detail, event.bytes, operator_name, arguments, results);
  } catch (py::error_already_set& error) {
    // Of an autograd thread too.
    error.restore();
    python_error kept;
    kept.persist();
    throw kept;
  }
}

void set_listener(const std::optional<py::function>& listener, bool diagnostics, bool operators) {
  if (!listener.has_value()) {
    hpu_sim::set_listener(nullptr, 0);
    return;
  }
  *listener_function = *listener;
  const int sorts = (diagnostics ? hpu_sim::kDiagnostics : 0) | (operators ? hpu_sim::kOperators : 0);
  hpu_sim::set_listener(&call_listener_function, sorts);
}

std::vector<int64_t> storage_numbers(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> result;
  result.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    result.push_back(tensor.has_storage() ? hpu_sim::storage_number(tensor.storage()) : 0);
  }
  return result;
}

// Counts and bytes by their names.
std::map<std::string, std::pair<int64_t, int64_t>> tallies() {
  std::map<std::string, std::pair<int64_t, int64_t>> result;
  for (size_t i = 0; i < hpu_sim::tallies.size(); ++i) {
    result[hpu_sim::kTallyNames[i]] = {hpu_sim::tallies[i].count, hpu_sim::tallies[i].bytes};
  }
  return result;
}

// The members of TraceEvent, in their order.
using TraceEventTuple = std::tuple<std::string, std::string, int64_t, int64_t, int64_t, int64_t>;

std::vector<TraceEventTuple> stop_device_trace() {
  if (hpu_sim::execution_mode() == hpu_sim::ExecutionMode::kLater) {
    hpu_sim::wait_for_device(/*keeps_gil=*/false);
  }
  std::vector<TraceEventTuple> events;
  for (const auto& event : hpu_sim::stop_device_trace()) {
    events.emplace_back(event.kind, event.name, event.start_ns, event.end_ns, event.thread_id, event.bytes);
  }
  return events;
}

c10::Stream stream_with(int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, hpu_sim::kDevice, id);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  hpu_sim::disable_cuda_hooks();
  hpu_sim::register_collectives();
  hpu_sim::share_malloc_arena();

  m.def("configure", [](int devices, bool lazy, py::function acquire) {
    *acquire_function = std::move(acquire);
    hpu_sim::acquire_callback = &call_function<void, &acquire_function>;
    hpu_sim::device_count = devices;
    hpu_sim::graph_recorder().set_lazy(lazy);
  });
  m.def("set_memory_limit", [](int64_t bytes) { hpu_sim::memory_limit = bytes; });
  m.def("register_operators", &hpu_sim::register_operators);
  m.def("set_cpu_placement", [](bool allowed) { hpu_sim::is_cpu_placement_allowed = allowed; });
  m.def("set_capturing", [](bool value) { hpu_sim::is_capturing = value; });
  m.def("cpu_placement_counts", &hpu_sim::cpu_placement_counts);
  m.def("set_low_precision_supported", [](bool value) { hpu_sim::has_low_precision = value; });
  m.def("register_autocast", &hpu_sim::register_autocast);
  m.def(
      "set_listener", &set_listener, py::arg("listener"), py::arg("diagnostics") = true, py::arg("operators") = false);
  m.def("drain_autograd_engine", &hpu_sim::drain_autograd_engine, py::call_guard<py::gil_scoped_release>());
  m.def("set_acquired", [](bool value) { hpu_sim::is_acquired = value; });
  m.def("set_strict", &hpu_sim::set_strict);
  m.def("is_strict", &hpu_sim::is_strict);
  m.def("set_fused_attention", [](bool value) { hpu_sim::is_fused_attention = value; });
  m.def("set_locator", [](py::function locate) {
    *locator_function = std::move(locate);
    hpu_sim::locate = &call_function<std::string, &locator_function>;
  });
  m.def("join_pipeline", &hpu_sim::join_pipeline);
  m.def("check_not_lazy", &hpu_sim::check_not_lazy);
  m.def("set_execution_mode", [](const std::string& name) {
    using hpu_sim::ExecutionMode;
    TORCH_CHECK_VALUE(name == "now" || name == "later", "`mode` must be now or later, got ", name);
    hpu_sim::current_execution_mode = name == "now" ? ExecutionMode::kNow : ExecutionMode::kLater;
  });
  m.def("set_blocking", [](bool value) { hpu_sim::is_blocking = value; });
  m.def("exit_at_interrupt", &hpu_sim::exit_at_interrupt);
  m.def("wait_for_device", [] { hpu_sim::wait_for_device(/*keeps_gil=*/false); });
  m.def("finish_collectives", &hpu_sim::finish_collectives, py::call_guard<py::gil_scoped_release>());
  m.def("mark_step", [] { hpu_sim::graph_recorder().flush(); });
  m.def("synchronize", &hpu_sim::synchronize_device);  // As the bridge, it keeps Python's lock.
  m.def("tallies", &tallies);
  m.def("start_device_trace", &hpu_sim::start_device_trace);
  m.def("stop_device_trace", &stop_device_trace);
  m.def("memory_stats", &hpu_sim::memory_stats);
  m.def("reset_peak_memory", &hpu_sim::reset_peak_memory);
  m.def("reset_accumulated_memory", &hpu_sim::reset_accumulated_memory);
  m.def("device_type", [] { return static_cast<int>(hpu_sim::kDevice.type()); });
  m.def("current_stream_id", [] { return hpu_sim::current_stream_id; });
  m.def("set_current_stream_id", [](int64_t id) { hpu_sim::current_stream_id = id; });
  m.def("new_stream_id", &hpu_sim::new_stream_id);
  // For torch before 2.4, whose own streams and events lack them.
  py::class_<hpu_sim::DeviceEvent>(m, "Event")
      .def(py::init<>())
      .def("record", &hpu_sim::DeviceEvent::record)
      .def("block", &hpu_sim::DeviceEvent::block, py::call_guard<py::gil_scoped_release>())
      .def("query", &hpu_sim::DeviceEvent::query)
      .def("synchronize", &hpu_sim::DeviceEvent::synchronize, py::call_guard<py::gil_scoped_release>())
      .def("elapsed_time", [](const hpu_sim::DeviceEvent& start, const hpu_sim::DeviceEvent& end) {
        return hpu_sim::milliseconds_between(&start, &end);
      });
  m.def("query_stream", [](int64_t id) { return stream_with(id).query(); });
  m.def(
      "synchronize_stream",
      [](int64_t id) { stream_with(id).synchronize(); },
      py::call_guard<py::gil_scoped_release>());
  m.def("default_generator", &hpu_sim::default_generator);
  m.def(
      "join_hccl_communicator",
      &hpu_sim::join_communicator,
      py::call_guard<py::gil_scoped_release>(),
      py::arg("store"),
      py::arg("rank"),
      py::arg("size"),
      py::arg("limit") = hpu_sim::kCommunicatorLimit);
  m.def("make_hccl_backend", [](const hpu_sim::StorePtr& store, int rank, int size, const py::function& connect) {
    // Destroyed with Python's lock, in `Communicator::gloo`, or never.
    auto* function = new py::function(connect);
    const py::gil_scoped_release no_gil;
    const auto connect_once = [function](const hpu_sim::StorePtr& joined) {
      const std::unique_ptr<py::function> owned(function);
      return (*owned)(joined).cast<hpu_sim::BackendPtr>();
    };
    return hpu_sim::make_hccl_backend(
        rank, size, std::make_shared<hpu_sim::Communicator>(hpu_sim::own_client(store), rank, size, connect_once));
  });
  m.def("make_planned_backend", [](int rank, int size) { return hpu_sim::make_hccl_backend(rank, size, nullptr); });
  m.def("set_planning", [](bool enabled, py::function is_reserved_on_host) {
    *host_function = std::move(is_reserved_on_host);
    hpu_sim::set_planning(enabled, &call_function<bool, &host_function>);
  });
  m.def("assume", &hpu_sim::assume);
  m.def("take_memory_changes", &hpu_sim::take_memory_changes);
  m.def("storage_numbers", &storage_numbers);
}
