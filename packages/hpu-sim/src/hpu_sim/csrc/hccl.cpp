#include "hccl.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "alias.h"
#include "allocator.h"
#include "events.h"
#include "fork_safety.h"
#include "graph.h"
#include "hccl_tensors.h"
#include "hccl_work.h"
#include "planning.h"
#include "stream.h"
#include "strict.h"

namespace hpu_sim {
namespace {

int64_t num_bytes(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

// Operator of torch that this thread runs, for the event of its collective.
thread_local const Event* running_operator = nullptr;

// Counts a collective whose caller contributes `payload`. The graph ends.
void record_collective(const char* name, const Tensors& payload) {
  // The other ranks read results of the graph.
  graph_recorder().flush();
  const int64_t bytes = num_bytes(payload);
  count(Tally::kCollective, bytes);
  if (is_heard()) {
    Event event = running_operator == nullptr ? Event{"collective", ""} : *running_operator;
    event.name = name;
    event.detail = payload.empty() ? "" : describe(payload.front());
    event.bytes = bytes;
    notify(event);
  }
}

// Returns a process group with this backend as its CPU backend, which torch's collectives for CPU tensors look up.
c10::intrusive_ptr<c10d::ProcessGroup> as_cpu_group(const BackendPtr& backend) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(backend->getRank(), backend->getSize());
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return group;
}

template <typename Method, typename Options>
auto by_gloo(Method method, const Options& options) {
  return [method, options](c10d::Backend& gloo, auto& received, auto& sent) {
    return (gloo.*method)(received, sent, options);
  };
}

// Without a communicator, the group is that of a plan: of any size in one process, it exchanges nothing. Tensors with
// values get those of a group whose ranks all contribute the same. Its tensors may be on the host, where torch's gloo
// serves such groups otherwise, and then count nothing.
class HcclBackend final : public c10d::Backend {
 public:
  explicit HcclBackend(int rank, int size, std::shared_ptr<Communicator> communicator)
      : c10d::Backend(rank, size), communicator_(std::move(communicator)) {
    if (is_planned()) {
      return;
    }
    if (execution_mode() == ExecutionMode::kNow) {
      communicator_->gloo();
    }
    const std::lock_guard<std::mutex> lock(backends_mutex);
    backends.push_back(this);
  }

  // As hcclCommDestroy, it waits for the work of the communicator.
  ~HcclBackend() override {
    HcclBackend::shutdown();
    for (const auto& stream : {collectives_, launches_, transfers_}) {
      if (stream != nullptr) {
        stream->close();
      }
    }
  }

  // Called by torch's destroy_process_group, after which others may keep the group, such as defaults of functions. An
  // override from torch 2.5 on.
  void shutdown() {  // NOLINT(modernize-use-override)
    {
      const std::lock_guard<std::mutex> lock(backends_mutex);
      backends.erase(std::remove(backends.begin(), backends.end(), this), backends.end());
    }
    for (const auto& stream : {collectives_, launches_, transfers_}) {
      if (stream != nullptr) {
        wait_on_host(stream->record());
      }
    }
  }

  HcclBackend(const HcclBackend&) = delete;
  HcclBackend& operator=(const HcclBackend&) = delete;

  static inline ForkSafeMutex& backends_mutex = *new ForkSafeMutex();
  // In the order of creation, which is the same on all ranks.
  static inline std::vector<HcclBackend*>& backends = *new std::vector<HcclBackend*>();

  const std::string getBackendName() const override { return "hccl"; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return exchange(
        {c10d::OpType::BROADCAST, "broadcast", tensors, root_text(options.rootRank)},
        tensors,
        Tensors{},
        [options](c10d::Backend& gloo, Tensors& received, Tensors& /*sent*/) {
          return gloo.broadcast(received, options);
        });
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return run_reduction({c10d::OpType::ALLREDUCE, "allreduce", tensors}, &c10d::Backend::allreduce, options);
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return run_reduction(
        {c10d::OpType::ALLREDUCE_COALESCED, "allreduce_coalesced", tensors},
        &c10d::Backend::allreduce_coalesced,
        options);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return run_reduction(
        {c10d::OpType::REDUCE, "reduce", tensors, root_text(options.rootRank)}, &c10d::Backend::reduce, options);
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    for (size_t i = 0; is_planned() && i < outputs.size(); ++i) {
      for (const auto& output : outputs[i]) {
        give_value(output, inputs[i]);
      }
    }
    return exchange(
        {c10d::OpType::ALLGATHER, "allgather", inputs}, outputs, inputs, by_gloo(&c10d::Backend::allgather, options));
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    if (is_planned() && !is_hpu_tensor(output) && output.numel() == input.numel() * getSize()) {
      output.view({getSize(), -1}).copy_(as_cpu(input).reshape({1, -1}).expand({getSize(), -1}));
    }
    return allgather_into(
        {c10d::OpType::_ALLGATHER_BASE, "allgather_base", {input}}, Tensors{output}, Tensors{input}, options);
  }

#if HPU_SIM_TORCH >= 201
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return allgather_into(
        {c10d::OpType::COALESCED, "allgather_into_tensor_coalesced", inputs}, outputs, inputs, options);
  }
#endif

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return exchange(
        {c10d::OpType::GATHER, "gather", inputs, root_text(options.rootRank)},
        outputs,
        inputs,
        by_gloo(&c10d::Backend::gather, options));
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    return exchange(
        {c10d::OpType::SCATTER, "scatter", outputs, root_text(options.rootRank)},
        outputs,
        inputs,
        by_gloo(&c10d::Backend::scatter, options));
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    return run_reduce_scatter(
        {c10d::OpType::REDUCE_SCATTER, "reduce_scatter", concat_lists(inputs)},
        NativeReduceDtypes::kFloats,
        outputs,
        inputs,
        options);
  }

  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    return run_reduce_scatter(
        {c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_base", {input}},
        NativeReduceDtypes::kFloatsAndInts,
        {output},
        {{input}},
        options);
  }

#if HPU_SIM_TORCH >= 201
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    return run_reduce_scatter(
        {c10d::OpType::COALESCED, "reduce_scatter_tensor_coalesced", inputs},
        NativeReduceDtypes::kFloatsAndInts,
        outputs,
        as_lists(inputs),
        options);
  }
#endif

  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_split,
      std::vector<int64_t>& input_split,
      const c10d::AllToAllOptions& options) override {
    if (is_planned()) {
      give_value(output, input);
    }
    return exchange(
        {c10d::OpType::ALLTOALL_BASE, "alltoall_base", {input}},
        Tensors{output},
        Tensors{input},
        [output_split, input_split, options](c10d::Backend& gloo, Tensors& received, Tensors& sent) mutable {
          return gloo.alltoall_base(received.front(), sent.front(), output_split, input_split, options);
        });
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    // Gloo has no alltoall of lists before torch 2.13, and then only for tensors of one size.
    auto to = as_aliases("alltoall", outputs);
    auto from = as_aliases("alltoall", inputs);
    return launch(
        {c10d::OpType::ALLTOALL, "alltoall", inputs, "", outputs, inputs}, [to, from, options](c10d::Backend& gloo) {
          const auto received = map_tensors(to, &as_bytes);
          const auto sent = map_tensors(from, &as_bytes);
          auto received_sizes = numels(received);
          auto sent_sizes = numels(sent);
          at::Tensor all_received = flatten(received);
          at::Tensor all_sent = flatten(sent);
          return Started{
              gloo.alltoall_base(all_received, all_sent, received_sizes, sent_sizes, options),
              [all_received, received] { unflatten_into(all_received, received); }};
        });
  }

  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    return exchange(
        {c10d::OpType::SEND, "send", tensors},
        Tensors{},
        tensors,
        [destination, tag = used_tag(tag)](c10d::Backend& gloo, Tensors& /*received*/, Tensors& sent) {
          return gloo.send(sent, destination, tag);
        });
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    return exchange(
        {c10d::OpType::RECV, "recv", tensors},
        tensors,
        Tensors{},
        [source, tag = used_tag(tag)](c10d::Backend& gloo, Tensors& received, Tensors& /*sent*/) {
          return gloo.recv(received, source, tag);
        });
  }

  WorkPtr recvAnysource(Tensors& /*tensors*/, int /*tag*/) override {
    throw_unsupported("recv_any_source", "ProcessGroupHcclBase does not support recv");
  }

  // A barrier of the hosts, which does not synchronize the device. As the bridge's, it blocks in the call, also an
  // asynchronous one, without a limit.
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    if (is_planned()) {
      return make_hccl_work(c10d::OpType::BARRIER, {}, {});
    }
    if (execution_mode() == ExecutionMode::kNow) {
      return enqueue({c10d::OpType::BARRIER, "barrier"}, [options](c10d::Backend& gloo) {
        return Started{gloo.barrier(options)};
      });
    }
    host_barrier();
    return make_hccl_work(c10d::OpType::BARRIER, {}, {});
  }

  void monitoredBarrier(const c10d::BarrierOptions& options, bool waits_for_all) override {
    if (!is_planned()) {
      c10d::Backend::monitoredBarrier(options, waits_for_all);
    }
  }

  void host_barrier() {
    constexpr int kKeys = 3;
    const int round = num_barriers_++;
    const std::string key = std::to_string(round % kKeys) + "HOST_BARRIER:" + std::to_string(getSize());
    const int64_t arrivals = static_cast<int64_t>(getSize()) * (round / kKeys + 1);
    auto& store = communicator_->store();
    store.add(key, 1);
    while (store.add(key, 0) < arrivals) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

#if HPU_SIM_TORCH >= 201
  // A program that raises between the two leaves the group coalescing, and torch offers it no way to reset that: the
  // next start drops what was launched before, whose works the caller has.
  void startCoalescing() override {
    ensure_acquired();
    const std::lock_guard<std::mutex> lock(coalesced_mutex_);
    coalesced_.emplace();
  }

  WorkPtr endCoalescing() override { return make_coalesced_work(take_coalesced()); }
#endif

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return num_launched_; }

 private:
  // A collective, by the caller's hpu tensors.
  struct Call {
    c10d::OpType type;
    const char* name;
    Tensors payload = {};     // for the counters
    std::string detail = "";  // reduction and root
    Tensors outputs = {};
    Tensors inputs = {};
  };

  static std::string root_text(int64_t root) { return ", root " + std::to_string(root); }

  static std::string reduction_text(const c10d::ReduceOp& op) {
    static constexpr std::array kNames = {"sum", "average", "product", "minimum", "maximum"};
    const auto index = static_cast<size_t>(static_cast<c10d::ReduceOp::RedOpType>(op));
    return index < kNames.size() ? std::string(", ") + kNames[index] : ", reduction " + std::to_string(index);
  }

  // The dtype and the number of elements that all ranks must have in common.
  static std::string signature(const Call& call) {
    const bool is_uneven = call.type == c10d::OpType::ALLTOALL || call.type == c10d::OpType::ALLTOALL_BASE;
    std::ostringstream text;
    text << call.name << call.detail;
    for (const auto& tensor : call.payload) {
      text << ' ' << tensor.scalar_type() << ' ' << (is_uneven ? 0 : tensor.numel());
    }
    return text.str();
  }

  static std::string description(const Call& call) {
    std::string text = call.name;
    for (size_t i = 0; i < call.payload.size(); ++i) {
      text += (i == 0 ? " of " : ", ") + describe(call.payload[i]);
    }
    const std::string line = launching_line();
    return text + call.detail + (line.empty() ? "" : " at " + line);
  }

  bool is_planned() const { return communicator_ == nullptr; }

  template <typename Lists>
  Lists as_aliases(const char* name, const Lists& tensors) const {
    return map_tensors(
        tensors, [&](const at::Tensor& tensor) { return is_planned() ? tensor : as_checked_cpu_alias(name, tensor); });
  }

  static void give_value(at::Tensor output, const at::Tensor& input) {
    if (has_values(input) && output.sizes() == input.sizes()) {
      copy_without_data(output, input);
    }
  }

  static Tensors all_of(const Tensors& tensors) { return tensors; }
  static Tensors all_of(const TensorLists& lists) { return concat_lists(lists); }

  // Launches a collective that copies bits, lists of tensors or lists of these. `run` starts it on gloo, with what it
  // receives and sends as bytes.
  template <typename To, typename From, typename Run>
  WorkPtr exchange(Call call, const To& outputs, const From& inputs, Run run) {
    call.outputs = all_of(outputs);
    call.inputs = all_of(inputs);
    auto to = as_aliases(call.name, outputs);
    auto from = as_aliases(call.name, inputs);
    return launch(call, [to, from, run](c10d::Backend& gloo) mutable {
      OutputBuffers buffers;
      auto received = map_tensors(to, [&](const at::Tensor& tensor) { return buffers.add(as_bytes(tensor)); });
      auto sent = map_tensors(from, &as_input_bytes);
      return Started{run(gloo, received, sent), buffers.copy_back()};
    });
  }

  // Gloo's collectives into one tensor, where a release of torch has them, gather lists of tensors by rank as well.
  WorkPtr allgather_into(
      const Call& call, const Tensors& outputs, const Tensors& inputs, const c10d::AllgatherOptions& options) {
    return exchange(
        call,
        outputs,
        inputs,
        [options, size = getSize()](c10d::Backend& gloo, const Tensors& to, const Tensors& from) {
          auto sent = map_tensors(from, &as_rows);
          TensorLists received(size);
          for (const auto& whole : to) {
            const auto parts = as_rows(whole).chunk(size);
            for (size_t rank = 0; rank < received.size(); ++rank) {
              received[rank].push_back(parts[rank]);
            }
          }
          return gloo.allgather_coalesced(received, sent, options);
        });
  }

  // Returns the work of `call`, which `start` starts.
  WorkPtr launch(const Call& call, const Start& start) {
    ++num_launched_;
    if (!is_planned() || (!call.payload.empty() && is_hpu_tensor(call.payload.front()))) {
      record_collective(call.name, call.payload);
    }
    return launched(is_planned() ? make_hccl_work(call.type, call.outputs, {}) : enqueue(call, start));
  }

  // Enqueues a collective in streams of the communicator, after what the caller's stream has launched. A collective
  // starts and ends in one stream. A transfer starts although the one before, with another rank, has not ended: it ends
  // in another stream, and in one of its own if kernels run now, perhaps before that one.
  WorkPtr enqueue(const Call& call, const Start& start) {
    const bool is_now = execution_mode() == ExecutionMode::kNow;
    const bool is_transfer = call.type == c10d::OpType::SEND || call.type == c10d::OpType::RECV;
    auto& starting = created(is_transfer ? launches_ : collectives_);
    if (!is_now) {
      if (graph_recorder().lazy() || is_coalescing()) {
        communicator_->gloo();  // Its first use holds the host, as in the bridge.
      }
      starting.wait_for(current_stream()->record());
      for_each_tensor_of(call, [&](const at::Tensor& tensor) { starting.wait_for(pending_event(tensor.storage())); });
    }
    const auto running = std::make_shared<RunningCollective>(communicator_, call.name, /*raises=*/is_now);
    const bool is_compared = !is_transfer && getSize() > 1;
    running->push(
        starting,
        WorkKind::kWait,
        [key = is_compared ? signature(call) : "",
         what = is_compared ? description(call) : ""](RunningCollective& collective) { collective.meet(key, what); });
    const auto started =
        running->push(starting, WorkKind::kKernel, [start](RunningCollective& collective) { collective.start(start); });
    const auto own = is_transfer && is_now ? Stream::create() : nullptr;
    auto& ending = own != nullptr ? *own : is_transfer ? created(transfers_) : starting;
    ending.wait_for(started);
    running->push(ending, WorkKind::kWait, &RunningCollective::wait);
    const auto event = running->push(
        ending,
        WorkKind::kKernel,
        [is_timed = call.type != c10d::OpType::BARRIER, bytes = num_bytes(call.payload)](
            RunningCollective& collective) { collective.end(is_timed ? std::make_optional(bytes) : std::nullopt); });
    if (!is_now) {
      for_each_tensor_of(call, [&](const at::Tensor& tensor) { set_pending_event(tensor.storage(), event); });
      return make_hccl_work(call.type, call.outputs, event);
    }
    ending.push(call.name, [running] { running->finish(); }, WorkKind::kWait);
    if (own != nullptr) {
      own->close();
    }
    return make_hccl_work(call.type, call.outputs, event, running);
  }

  template <typename Function>
  static void for_each_tensor_of(const Call& call, const Function& function) {
    for (const auto* tensors : {&call.outputs, &call.inputs}) {
      std::for_each(tensors->begin(), tensors->end(), function);
    }
  }

  Stream& created(StreamPtr& stream) {
    const std::lock_guard<std::mutex> lock(coalesced_mutex_);
    if (stream == nullptr) {
      stream = Stream::create();
    }
    return *stream;
  }

  bool is_coalescing() {
    const std::lock_guard<std::mutex> lock(coalesced_mutex_);
    return coalesced_.has_value();
  }

  // Returns `work`, which between startCoalescing and endCoalescing also belongs to the coalesced work.
  WorkPtr launched(WorkPtr work) {
    const std::lock_guard<std::mutex> lock(coalesced_mutex_);
    if (coalesced_.has_value()) {
      coalesced_->push_back(work);
    }
    return work;
  }

  // The bridge ignores tags: messages between two ranks match in their order.
  static int used_tag(int tag) { return is_strict() ? 0 : tag; }

  std::vector<WorkPtr> take_coalesced() {
    const std::lock_guard<std::mutex> lock(coalesced_mutex_);
    TORCH_CHECK(coalesced_.has_value(), "endCoalescing invoked without startCoalescing");
    auto works = std::move(*coalesced_);
    coalesced_.reset();
    return works;
  }

  // A plan takes any reduction, and notes those that HCCL refuses.
  void check_reduction_here(const char* name, const c10d::ReduceOp& op) const {
    if (!is_planned()) {
      check_reduction(name, op);
    }
  }

  // Waits for a reduction of tensors that HCCL converts, as the bridge does.
  template <typename Method, typename Options>
  WorkPtr run_reduction(Call call, Method method, const Options& options) {
    const c10d::ReduceOp& op = options.reduceOp;
    call.outputs = call.payload;
    call.detail = reduction_text(op) + call.detail;
    check_reduction_here(call.name, op);
    auto aliases = as_aliases(call.name, call.outputs);
    for (auto& tensor : aliases) {
      if (is_planned() && has_values(tensor) && op == c10d::ReduceOp::SUM) {
        as_cpu(tensor).mul_(getSize());
      }
    }
    auto work = launch(call, [aliases, method, options](c10d::Backend& gloo) {
      auto reduction = make_allreduce(aliases);
      return Started{(gloo.*method)(reduction.buffers, options), std::move(reduction.on_completed)};
    });
    if (!are_native(aliases, NativeReduceDtypes::kFloats)) {
      work->wait();
    }
    return work;
  }

  WorkPtr run_reduce_scatter(
      Call call,
      NativeReduceDtypes native_dtypes,
      const Tensors& outputs,
      const TensorLists& inputs,
      const c10d::ReduceScatterOptions& options) {
    call.outputs = outputs;
    call.inputs = concat_lists(inputs);
    call.detail = reduction_text(options.reduceOp);
    check_reduction_here(call.name, options.reduceOp);
    auto to = as_aliases(call.name, outputs);
    auto from = as_aliases(call.name, inputs);
    check_reduce_scatter(call.name, to, from, getSize());
    c10d::AllreduceCoalescedOptions allreduce;
    allreduce.reduceOp = options.reduceOp;
    allreduce.timeout = options.timeout;
    auto work = launch(call, [to, from, native_dtypes, allreduce, rank = getRank()](c10d::Backend& gloo) {
      auto reduction = make_reduce_scatter(to, from, native_dtypes, rank);
      auto& buffers = reduction.buffers;
      return Started{
          buffers.size() == 1 ? gloo.allreduce(buffers, allreduce) : gloo.allreduce_coalesced(buffers, allreduce),
          std::move(reduction.on_completed)};
    });
    if (!are_native(call.inputs, native_dtypes)) {
      work->wait();
    }
    return work;
  }

  std::shared_ptr<Communicator> communicator_;
  StreamPtr collectives_;
  StreamPtr launches_;  // of transfers between two ranks
  StreamPtr transfers_;
  std::atomic<int> num_barriers_{0};
  std::atomic<uint64_t> num_launched_{0};
  std::mutex coalesced_mutex_;  // also of the streams
  std::optional<std::vector<WorkPtr>> coalesced_;
};

// Boxed kernel for every collective of every torch release. It only replaces the process group.
void run_collective(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  Event event{"collective", ""};
  if (is_recorded()) {
    event.op = &op;
    event.arguments.assign(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  }
  const auto restore = c10::make_scope_exit([before = running_operator] { running_operator = before; });
  running_operator = &event;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "process_group") {
      auto& value = (*stack)[first + i];
      auto backend = value.toCustomClass<c10d::ProcessGroup>()->getBackend(c10::DeviceType::HPU);
      TORCH_CHECK(
          dynamic_cast<HcclBackend*>(backend.get()) != nullptr,
          "collectives on hpu tensors need the hccl backend, got a process group with the backend ",
          backend->getBackendName(),
          ".");
      value = c10::IValue(as_cpu_group(backend));
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

}  // namespace

BackendPtr make_hccl_backend(int rank, int size, std::shared_ptr<Communicator> communicator) {
  return c10::make_intrusive<HcclBackend>(rank, size, std::move(communicator));
}

void finish_collectives() {
  if (execution_mode() != ExecutionMode::kLater) {
    return;
  }
  std::vector<HcclBackend*> backends;
  {
    const std::lock_guard<std::mutex> lock(HcclBackend::backends_mutex);
    backends = HcclBackend::backends;
  }
  for (auto* backend : backends) {
    try {
      backend->host_barrier();
    } catch (const std::exception&) {
      // The process of the store is gone.
    }
  }
  wait_for_device(/*keeps_gil=*/false);
}

void register_collectives() {
  static auto* library = new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::HPU, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("c10d::", 0) != 0) {
      continue;
    }
    const auto op = dispatcher.findOp(name);
    if (op.has_value() && op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
      library->impl(name.name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_collective>());
    }
  }
}

}  // namespace hpu_sim
