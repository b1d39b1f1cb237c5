#include "runtime/checkpoint_store.h"

#include <random>

#include "tests/check.h"
#include "tests/runtime/checkpoints.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

namespace {

void quiet(const std::string&) {}

// Saves steps 1, 2, … with these scores; a negative one stands for none.
void save_all(CheckpointStore& store, const std::vector<double>& scores) {
  std::uint64_t step = 0;
  for (const double score : scores) {
    store.save(make_checkpoint(++step), score < 0 ? std::nullopt : std::optional(score));
  }
}

}  // namespace

TEST_CASE("checkpoint store: the newest ones stay, and the best ones beside them") {
  const std::vector<double> scores = {0.5, 0.1, 0.3, -1, 0.1, NAN, 0.9, 0.8};
  const struct {
    CheckpointSettings settings;
    std::string left;
  } cases[] = {{{.keep = 3}, "6 7 8"},
               {{.keep = 1}, "8"},
               {{.keep = 0}, "8"},
               {{.keep = 1, .keep_best = 1}, "5 8"},  // of equals the newer
               {{.keep = 1, .keep_best = 2}, "2 5 8"},
               {{.keep = 2, .keep_best = 3}, "2 3 5 7 8"},
               {{.keep = 1, .keep_best = 100}, "1 2 3 5 7 8"},
               {{.keep = 100}, "1 2 3 4 5 6 7 8"}};
  for (const auto& [settings, left] : cases) {
    const RunFolder run;
    CheckpointStore store(run.path(), settings, quiet);
    save_all(store, scores);
    CHECK(listing(run.path()) == left);
    CHECK(differs_from(*store.newest(), 8) == "");
  }
}

TEST_CASE("checkpoint store: scores are remembered over runs") {
  const RunFolder run;
  for (std::uint64_t step = 1; step <= 5; ++step) {
    CheckpointStore store(run.path(), {.keep = 1, .keep_best = 1}, quiet);
    store.save(make_checkpoint(step), step == 2 ? 0.25 : 1.0 / 3);
  }
  CHECK(listing(run.path()) == "2 5");
  CheckpointStore store(run.path(), quiet);
  CHECK(differs_from(*store.best(), 2) == "");
  CHECK(score_of(store.best()->manifest) == 0.25);
}

TEST_CASE("checkpoint store: best takes the lowest score, the newest of equals, and the next best for a damaged one") {
  const RunFolder run;
  std::vector<std::string> said;
  CheckpointStore store(run.path(), {.keep = 10}, [&](const std::string& line) { said.push_back(line); });
  CHECK_FALSE(store.best());
  store.save(make_checkpoint(9), std::nullopt);
  CHECK_FALSE(store.best());
  save_all(store, {0.5, 0.1, 0.1, 0.7, -1});
  CHECK(listing(run.path()) == "1 2 3 4 5");  // 9 was of another way
  CHECK(differs_from(*store.best(), 3) == "");
  CHECK(said.empty());
  std::filesystem::resize_file(path_of(run.path(), 3) + "/state.safetensors", 100);
  CHECK(differs_from(*store.best(), 2) == "");
  REQUIRE(said.size() == 1);
  CHECK(said[0].ends_with("bytes where its manifest says " +
                          fmt::format("{}; taking the next best",
                                      std::filesystem::file_size(path_of(run.path(), 1) + "/state.safetensors"))));
  said.clear();
  std::filesystem::resize_file(path_of(run.path(), 2) + "/manifest.json", 100);
  CHECK(differs_from(*store.best(), 1) == "");
  CHECK(said.size() == 2);
}

TEST_CASE("checkpoint store: none at all is no error, only damaged ones are") {
  const RunFolder run;
  std::vector<std::string> said;
  const CheckpointStore reader(run.path(), [&](const std::string& line) { said.push_back(line); });
  CHECK_FALSE(reader.newest());
  CHECK(std::filesystem::is_empty(run.path()));  // a reader makes nothing
  CHECK(
      error_of([&] { CheckpointStore(run.path(), quiet).save(make_checkpoint(1), std::nullopt); }).starts_with("70: "));
  CheckpointStore store(run.path(), {}, quiet);
  CHECK_FALSE(reader.newest());
  save_all(store, {0.5, 0.1});
  for (const std::uint64_t step : {1, 2}) std::filesystem::remove(path_of(run.path(), step) + "/manifest.sha256");
  const std::string message = fmt::format(
      "6: no checkpoint in {}/checkpoints is valid; put one back from a copy, or begin anew in another directory",
      run.path());
  CHECK(error_of([&] { reader.newest(); }) == message);
  const auto line = [&](std::uint64_t step) {
    return fmt::format("checkpoint {0} is damaged: cannot open {0}/manifest.sha256: No such file or directory",
                       path_of(run.path(), step));
  };
  CHECK(said == std::vector<std::string>{line(2) + "; taking an older one", line(1)});
  CHECK(error_of([&] { reader.best(); }) == message);
}

TEST_CASE("checkpoint store: a directory under another step's name is not believed") {
  const RunFolder run;
  std::vector<std::string> said;
  CheckpointStore store(run.path(), {}, [&](const std::string& line) { said.push_back(line); });
  save_all(store, {1, 1});
  std::filesystem::copy(path_of(run.path(), 1), path_of(run.path(), 5));
  CHECK(differs_from(*store.newest(), 2) == "");
  CHECK(said == std::vector<std::string>{
                    fmt::format("checkpoint {0} is damaged: {0}/manifest.json: is of step 1; taking an older one",
                                path_of(run.path(), 5))});
}

TEST_CASE("checkpoint store: damaged ones of later steps cost a valid one no place") {
  const RunFolder run;
  CheckpointStore store(run.path(), {.keep = 3}, quiet);
  save_all(store, {-1, -1, -1, -1});
  for (const std::uint64_t step : {3, 4}) std::filesystem::remove(path_of(run.path(), step) + "/state.safetensors");
  CheckpointStore resumed(run.path(), {.keep = 1}, quiet);
  REQUIRE(differs_from(*resumed.newest(), 2) == "");
  resumed.save(make_checkpoint(2), std::nullopt);  // not the newest by its number
  CHECK(listing(run.path()) == "2");
  CHECK(differs_from(*resumed.newest(), 2) == "");
}

TEST_CASE("checkpoint store: one of the same step is replaced") {
  const RunFolder run;
  CheckpointStore store(run.path(), {}, quiet);
  store.save(make_checkpoint(4), 0.5);
  Checkpoint other = make_checkpoint(4);
  other.manifest["plan"] = "another";
  store.save(other, std::nullopt);
  CHECK(store.newest()->manifest["plan"] == "another");
  CHECK(listing(run.path()) == "4");
  write_text(path_of(run.path(), 4) + "/state.safetensors", "damaged");
  store.save(make_checkpoint(4), std::nullopt);
  CHECK(differs_from(*store.newest(), 4) == "");
}

TEST_CASE("checkpoint store: what killed saves left is no checkpoint, and goes when a run writes again") {
  const RunFolder run;
  { CheckpointStore(run.path(), {}, quiet).save(make_checkpoint(3), std::nullopt); }
  const std::string folder = run.path() + "/checkpoints";
  std::filesystem::copy(path_of(run.path(), 3), folder + "/.tmp-step-000000000007");
  std::filesystem::copy(path_of(run.path(), 3), folder + "/.tmp-removed-step-000000000001");
  std::filesystem::copy(path_of(run.path(), 3), folder + "/step-8");  // not a name that a save gives
  std::filesystem::rename(path_of(run.path(), 3), path_of(run.path(), 3) + ".replaced");
  const CheckpointStore reader(run.path(), quiet);
  CHECK(differs_from(*reader.newest(), 3) == "");  // set aside and not yet replaced
  CheckpointStore store(run.path(), {}, quiet);
  CHECK(listing(run.path()) == "3 8");
  CHECK(differs_from(*store.newest(), 3) == "");
  std::filesystem::copy(path_of(run.path(), 3), path_of(run.path(), 3) + ".replaced");
  CheckpointStore again(run.path(), {}, quiet);
  CHECK(listing(run.path()) == "3 8");
}

TEST_CASE("checkpoint store: a folder that cannot be made is an error with the system's reason") {
  const RunFolder run;
  write_text(run.path() + "/checkpoints", "a file");
  CHECK(error_of([&] { CheckpointStore(run.path(), {}, quiet); }) ==
        fmt::format("6: cannot create {}/checkpoints: Not a directory", run.path()));
}
