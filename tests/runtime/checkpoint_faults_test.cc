// Checkpoints of processes that are killed and on disks that are full.
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <random>
#include <thread>

#include "runtime/checkpoint_writer.h"
#include "tests/check.h"
#include "tests/runtime/checkpoints.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

namespace {

void quiet(const std::string&) {}

// A disk of 1 MiB where that can be mounted, else a limit on the size of files.
class SmallDisk {
 public:
  SmallDisk() : mounted_(::mount("none", folder_.path().c_str(), "tmpfs", 0, "size=1m") == 0) {
    if (mounted_) return;
    before_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit small{1 << 20, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    if (mounted_) {
      ::umount2(folder_.path().c_str(), MNT_DETACH);
    } else {
      ::setrlimit(RLIMIT_FSIZE, &limit_);
      std::signal(SIGXFSZ, before_);
    }
  }
  const std::string& path() const { return folder_.path(); }
  const char* reason() const { return mounted_ ? "No space left on device" : "File too large"; }

 private:
  const RunFolder folder_;
  const bool mounted_;
  rlimit limit_{};
  void (*before_)(int) = nullptr;
};

Checkpoint large_checkpoint(std::uint64_t step) {
  Checkpoint checkpoint = make_checkpoint(step);
  checkpoint.state.push_back({"large", at::ones({2'000'000})});
  return checkpoint;
}

}  // namespace

TEST_CASE("checkpoint faults: killed at any point of a save, there is a valid checkpoint, the old one or the new") {
  for (const bool replaces : {false, true}) {
    const std::uint64_t old_step = 2, new_step = replaces ? 2 : 3;
    bool in_place = false;
    for (const std::string point : kSaveKillPoints) {
      CAPTURE(point);
      CAPTURE(replaces);
      if (point == "renamed") in_place = true;
      if (!replaces && point == "old set aside") continue;
      const RunFolder run;
      CheckpointStore(run.path(), {.keep = 1}, quiet).save(make_checkpoint(old_step), std::nullopt);
      const pid_t process = start_process([&] {
        ::setenv("LANEWISE_KILL_AT", (point + ":1").c_str(), 1);
        CheckpointStore store(run.path(), {.keep = 1}, quiet);
        Checkpoint checkpoint = make_checkpoint(new_step);
        checkpoint.manifest["plan"] = "new";
        store.save(checkpoint, std::nullopt);
      });
      CHECK(end_of(process) == 128 + SIGKILL);

      std::vector<std::string> said;
      const auto say = [&](const std::string& line) { said.push_back(line); };
      const auto is_right = [&](const std::optional<Checkpoint>& found) {
        REQUIRE(found);
        CHECK(differs_from(*found, in_place ? new_step : old_step) == "");
        CHECK(found->manifest["plan"] == (in_place ? "new" : "3f2a"));
      };
      is_right(CheckpointStore(run.path(), say).newest());
      CheckpointStore store(run.path(), {.keep = 1}, say);  // cleans up
      is_right(store.newest());
      CHECK(said.empty());
      CHECK(listing(run.path()).find_first_not_of("23 ") == std::string::npos);
      store.save(make_checkpoint(4), std::nullopt);
      CHECK(differs_from(*store.newest(), 4) == "");
      CHECK(listing(run.path()) == "4");
    }
    CHECK(in_place);
  }
}

TEST_CASE(
    "checkpoint faults: killed at any time while it saves on and on, a run finds a valid checkpoint and goes on") {
  const RunFolder run;
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  CheckpointStore(run.path(), {.keep = 1}, quiet).save(make_checkpoint(1), std::nullopt);
  std::uint64_t reached = 1;
  for (int round = 0; round < 25; ++round) {
    CAPTURE(round);
    int saved[2];
    REQUIRE(::pipe(saved) == 0);
    const pid_t process = start_process([&] {
      CheckpointStore store(run.path(), {.keep = 1}, quiet);
      for (std::uint64_t step = store.newest()->step + 1; ::write(saved[1], "x", 1) == 1; ++step) {
        store.save(make_checkpoint(step), std::nullopt);
      }
    });
    ::close(saved[1]);
    char byte = 0;
    for (std::uint64_t n = random() % 4 + 2; n > 0; --n) REQUIRE(::read(saved[0], &byte, 1) == 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));  // somewhere in the next save
    ::kill(process, SIGKILL);
    CHECK(end_of(process) == 128 + SIGKILL);
    ::close(saved[0]);
    std::vector<std::string> said;
    const auto found = CheckpointStore(run.path(), [&](const std::string& line) { said.push_back(line); }).newest();
    REQUIRE(found);
    CHECK(differs_from(*found, found->step) == "");
    CHECK(found->step > reached);
    CHECK(said.empty());
    reached = found->step;
  }
  CheckpointStore store(run.path(), {.keep = 1}, quiet);
  store.save(make_checkpoint(reached + 1), std::nullopt);
  CHECK(listing(run.path()) == std::to_string(reached + 1));
}

TEST_CASE("checkpoint faults: a full disk is told with path and reason, and the old checkpoint stays as it was") {
  const SmallDisk disk;
  CheckpointStore store(disk.path(), {.keep = 1}, quiet);
  store.save(make_checkpoint(1), 0.5);
  CHECK(error_of([&] { store.save(large_checkpoint(2), 0.1); }) ==
        fmt::format("6: the checkpoint of step 2 is not saved, earlier ones are untouched: cannot write "
                    "{}/checkpoints/.tmp-step-000000000002/state.safetensors: {}",
                    disk.path(), disk.reason()));
  CHECK(listing(disk.path()) == "1");
  CHECK(differs_from(*store.newest(), 1) == "");
  CHECK(differs_from(*store.best(), 1) == "");
  CHECK(error_of([&] { store.save(large_checkpoint(1), 0.1); }) != "");  // one that would replace it
  CHECK(differs_from(*store.newest(), 1) == "");
  store.save(make_checkpoint(3), std::nullopt);
  CHECK(listing(disk.path()) == "3");
}

TEST_CASE("checkpoint faults: on a full disk the writer stops the run or lets it go on, as it was told") {
  const SmallDisk disk;
  CheckpointStore store(disk.path(), {.keep = 1}, quiet);
  const auto save = [&](const Checkpoint& checkpoint, std::optional<double> score) { store.save(checkpoint, score); };
  {
    CheckpointWriter writer(save, OnError::kStop, quiet);
    writer.save(make_checkpoint(1), std::nullopt);
    writer.save(large_checkpoint(2), std::nullopt);
    const std::string message = error_of([&] { writer.save(make_checkpoint(3), std::nullopt); });
    CHECK(message.starts_with("6: the checkpoint of step 2 is not saved"));
    CHECK(message.ends_with(disk.reason()));
  }
  CHECK(differs_from(*store.newest(), 1) == "");
  std::vector<std::string> said;
  CheckpointWriter writer(save, OnError::kContinue, [&](const std::string& line) { said.push_back(line); });
  for (std::uint64_t step = 4; step <= 7; ++step) {
    writer.save(step % 2 == 0 ? large_checkpoint(step) : make_checkpoint(step), std::nullopt);
  }
  writer.wait();
  CHECK(said.size() == 2);
  CHECK(writer.times().failed == 2);
  CHECK(differs_from(*store.newest(), 7) == "");
  CHECK(listing(disk.path()) == "7");
}
