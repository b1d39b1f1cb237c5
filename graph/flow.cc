#include "graph/flow.h"

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#include <sched.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "graph/core.h"

namespace lanewise {
namespace {

// The cores that a thread may run on.
class Affinity {
 public:
  static Affinity of_this_thread() {
    Affinity a;
    CPU_ZERO(&a.set_);
    sched_getaffinity(0, sizeof a.set_, &a.set_);
    return a;
  }
  void apply() const { sched_setaffinity(0, sizeof set_, &set_); }

  // Only the i-th of these cores (modulo their number).
  Affinity only(int i) const {
    Affinity a;
    CPU_ZERO(&a.set_);
    int skip = i % std::max(1, CPU_COUNT(&set_));
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set_) && skip-- == 0) CPU_SET(core, &a.set_);
    }
    return a;
  }

 private:
  cpu_set_t set_;
};

// Gives the caller its cores back, however the scope is left.
class AffinityScope {
 public:
  ~AffinityScope() { before_.apply(); }

 private:
  const Affinity before_ = Affinity::of_this_thread();
};

}  // namespace

// The core on oneTBB: every node is a function_node of one graph, and waking a stage is a message to its node, which
// takes a turn of work. The graph's wait tells when the flow rests. Exceptions stay in the core: it keeps the first.
class Flow::Impl final : public FlowCore {
 public:
  Impl(const Plan& plan, std::vector<std::unique_ptr<Node>> nodes, const FlowOptions& options)
      : FlowCore(plan, std::move(nodes), options.threads == 1),
        options_(options),
        // Asked before any thread is pinned: oneTBB counts the cores of the affinity mask once, at its first use.
        most_(std::max(options.threads, tbb::info::default_concurrency())),
        arena_(options.threads),
        observer_(*this) {
    arena_.execute([this] { graph_.emplace(); });  // binds the graph to the arena
    for (std::size_t i = 0; i < stages().size(); ++i) {
      tasks_.emplace_back(*graph_, tbb::flow::unlimited, [this](tbb::flow::continue_msg) {
        work();
        return tbb::flow::continue_msg();
      });
    }
  }
  ~Impl() override { observer_.observe(false); }

  std::string tell(const std::exception& error) const override { return options_.tell(error); }

  Outcome run() {
    // Only while running, so that a flow that rests limits no other. The default allows no more threads than cores.
    const tbb::global_control threads(tbb::global_control::max_allowed_parallelism, most_);
    const AffinityScope affinity;
    arena_.execute([this] {
      start_all();
      graph_->wait_for_all();
    });
    return settle();
  }

 private:
  // Meets every thread that comes to work for this flow, the caller included.
  class Observer final : public tbb::task_scheduler_observer {
   public:
    explicit Observer(Impl& impl) : tbb::task_scheduler_observer(impl.arena_), impl_(impl) { observe(true); }
    void on_scheduler_entry(bool) override {
      if (impl_.options_.pin) impl_.cores_.only(tbb::this_task_arena::current_thread_index()).apply();
      if (!impl_.options_.on_worker_start) return;
      try {
        impl_.options_.on_worker_start();
      } catch (const std::exception& e) {
        impl_.stop(Exit::kInternal, std::string("a worker could not start: ") + e.what());
      }
    }
    void on_scheduler_exit(bool) override {
      if (impl_.options_.pin) impl_.cores_.apply();
    }

   private:
    Impl& impl_;
  };

  void wake(const Stage& stage) override {
    tasks_[&stage.plan() - plan().nodes.data()].try_put(tbb::flow::continue_msg());
  }

  // The arena takes it at once, whatever its threads are doing; the graph's count of what is under way holds it for it.
  void wake_from_outside(const Stage&) override {
    graph_->reserve_wait();
    arena_.enqueue([this] {
      work();
      graph_->release_wait();
    });
  }
  void keep_running(bool keep) override {
    if (keep) {
      graph_->reserve_wait();
    } else {
      graph_->release_wait();
    }
  }

  const FlowOptions options_;
  const Affinity cores_ = Affinity::of_this_thread();
  const int most_;
  tbb::task_arena arena_;
  Observer observer_;
  std::optional<tbb::flow::graph> graph_;
  std::deque<tbb::flow::function_node<tbb::flow::continue_msg>> tasks_;  // one a stage, in the plan's order
};

Flow::Flow(const Plan& plan, std::vector<std::unique_ptr<Node>> nodes, const FlowOptions& options)
    : impl_(std::make_unique<Impl>(plan, std::move(nodes), options)) {}

Flow::~Flow() = default;

Flow::Outcome Flow::run() { return impl_->run(); }

void Flow::cancel(Exit exit, const std::string& why) { impl_->stop(exit, why); }

FlowReport Flow::report() const { return impl_->report(); }

std::vector<std::string> Flow::waiting() const { return impl_->waiting(); }
std::vector<std::string> Flow::firing() const { return impl_->firing(); }
std::vector<std::string> Flow::hungry() const { return impl_->hungry(); }

Node& Flow::node(int index) { return impl_->node(index); }
const Node& Flow::node(int index) const { return impl_->node(index); }

void Flow::for_each_left(const std::function<void(int edge, const Packet& packet)>& visit) const {
  for (std::size_t i = 0; i < impl_->edges().size(); ++i) {
    impl_->edges()[i].for_each_left([&](const Packet& packet) { visit(static_cast<int>(i), packet); });
  }
}

std::vector<std::unique_ptr<Node>> make_nodes(const Plan& plan, const Services& services) {
  std::vector<std::unique_ptr<Node>> nodes;
  for (const PlanNode& node : plan.nodes) nodes.push_back(node.type->make(NodeContext{plan, node, services}));
  return nodes;
}

}  // namespace lanewise
